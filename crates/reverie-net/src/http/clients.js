// The clients of the server, and the servers that a run uses as one replay. A table's link has no "/" after the "#".
const CLIENTS = "#/clients", SHARDS = "#/shards";
function showPlaces({info, run}) {
  const places = [];
  const total = info.clients && info.clients.grpc + info.clients.shared_memory;
  if (info.clients) places.push(make("a", {href: CLIENTS}, counted(total, "client")));
  const shards = run && run.shards;
  if (shards) {
    const present = shards.filter((shard) => shard.present).length;
    const words = present === shards.length ? counted(present, "shard") : `${present} of ${counted(shards.length, "shard")} reachable`;
    places.push(make("a", {href: SHARDS, class: present === shards.length ? "" : "bad"}, words));
  }
  // Only what has changed is replaced, so that a link keeps the focus.
  const text = places.map((place) => `${place.textContent} ${place.className}`).join(", "), shown = byId("places");
  if (shown.dataset.text !== text) { shown.dataset.text = text; shown.replaceChildren(...places.flatMap((place) => [place, " "])); }
}

let asking = false;
async function showClients() {
  if (asking) return;
  asking = true;
  try {
    const response = await fetch("api/clients", {headers: headers(), cache: "no-store"}), found = await response.json();
    if (!response.ok) throw new Error(found.error);
    byId("clients").replaceChildren(...clientList(found));
  } catch (error) {
    byId("clients").replaceChildren(make("p", {class: "bad"}, error.message));
  } finally { asking = false; }
}
function clientList({total, clients}) {
  const heads = ["client", "from", "transport", "bytes in flight", "requests", "last seen", "session", "reconnects"];
  const rows = clients.map((client) => [client.name, client.peer, client.transport || "not connected", bytes(client.bytes_in_flight), whole(client.requests),
    `${seconds(client.silent_seconds)} ago`, seconds(client.seconds), whole(client.reconnects)]);
  const more = total - clients.length;
  return [make("p", null, make("a", {href: "#"}, "All tables")), make("h2", null, counted(total, "client")),
    ...(clients.length ? [make("div", {class: "wide"}, make("table", null, make("thead", null, make("tr", null, ...heads.map((head) => make("th", {scope: "col"}, head)))),
      make("tbody", null, ...rows.map((row, at) => make("tr", {class: clients[at].transport ? "" : "dim"}, ...row.map((cell) => make("td", null, cell)))))))] : []),
    ...(more > 0 ? [make("p", {class: "dim"}, `${whole(more)} more, with no more bytes in flight than the last of these`)] : []),
    make("p", {class: "dim"}, "Clients of the server's own process are not counted. A client that lost its connection may come back to its session.")];
}

function showShards(shards) {
  byId("shards").replaceChildren(make("p", null, make("a", {href: "#"}, "All tables")), make("h2", null, counted(shards.length, "shard")),
    make("div", {class: "cards"}, ...shards.map(shard)));
}
function shard(of, at) {
  const counts = [...(of.items == null ? ["its items are not known"] : [`${whole(of.items)} items`, bytes(of.bytes)]), counted(of.reconnects || 0, "reconnect"), counted(of.restarts || 0, "restart")];
  return make("article", {class: "card"}, make("h2", null, of.address || `shard ${at}`),
    make("strong", {class: of.present && !of.problem ? "good" : "bad"}, of.problem || (of.present ? "reachable" : "not reachable")), make("p", {class: "why dim"}, counts.join(" · ")),
    ...Object.entries(of.chances || {}).map(([table, chance]) => make("div", {class: "why"},
      make("div", {class: "row dim"}, make("span", null, `chance of a draw from ${table}`), make("span", null, chance == null ? "-" : `${short(Number((100 * chance).toPrecision(3)))} %`)),
      make("svg", {viewBox: "0 0 100 6", height: 6, preserveAspectRatio: "none", "aria-hidden": "true"},
        make("rect", {class: "bar", width: 100, height: 6}), make("rect", {class: "fill", width: 100 * (chance || 0), height: 6})))));
}
