"""The page of a server in a browser: Debian's Chromium, driven by Playwright, where it is installed."""

import contextlib
import os
import re
import shutil
import signal
import threading

import numpy as np
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from reverie import Client, Server, Table, rate_limiters, selectors
from reverie.pages import Page as RunPage
from reverie.pages import PageServer

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed"),
    pytest.mark.xdist_group("browser"),
    # A browser that answers nothing any more holds up one test, and not all of a run.
    pytest.mark.timeout(240),
]
#: A wait that ends only where something is broken, in seconds.
PATIENT = 100
#: A table's name that is an element of HTML.
ODD = '<b id="planted">x</b>\\n "'


class Browsers:
    """One browser for all tests, and another after a test that failed or did not close its tab: it may hang."""

    def __init__(self, folder):
        self.tab_open = False
        self._started, self._browser = contextlib.ExitStack(), None
        self._number, self._program = folder / "number", folder / "browser"
        self._program.write_text(f'#!/bin/sh\necho $$ > {self._number}\nexec {CHROMIUM} "$@"\n')
        self._program.chmod(0o700)

    def get(self):
        if self._browser is None:
            playwright = self._started.enter_context(sync_playwright())
            arguments = {"args": ["--no-sandbox", "--disable-gpu"], "timeout": PATIENT * 1000}
            self._browser = playwright.chromium.launch(executable_path=self._program, **arguments)
            self._started.callback(self._browser.close)
        return self._browser

    def end(self, *, kill=False):
        """One that hangs would not close."""
        if kill and self._browser is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self._number.read_text()), signal.SIGKILL)
        self._browser = None
        self._started.close()


@pytest.fixture(scope="module")
def browsers(tmp_path_factory):
    expect.set_options(timeout=PATIENT * 1000)
    browsers = Browsers(tmp_path_factory.mktemp("browser"))
    yield browsers
    browsers.end()


@pytest.fixture
def browser(browsers, request):
    """A browser that served the test before; one that hangs does not reach the next test."""
    num_failed, browsers.tab_open = request.session.testsfailed, False
    yield browsers.get()
    if browsers.tab_open or request.session.testsfailed > num_failed:
        browsers.end(kill=True)


@pytest.fixture
def page(browser, browsers):
    """A page in a tab of its own. Its script must not fail, nor try what its security policy forbids."""
    browsers.tab_open = True
    context = browser.new_context()
    context.set_default_timeout(PATIENT * 1000)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    browsers.tab_open = False
    assert not errors


def uniform(name, max_size=10, min_size=1):
    return Table(name, selectors.Uniform(), selectors.Fifo(), max_size, rate_limiters.MinSize(min_size))


def show(page: Page, server, place=""):
    page.goto(f"http://{server.http_address}/{place}")


def card(page: Page, name):
    return page.get_by_role("article").filter(has=page.get_by_role("link", name=name, exact=True))


@pytest.fixture
def blocked():
    """A server with a full queue, and the event that a thread waits for before it inserts once more."""
    with Server([Table.queue("replay", 1), uniform(ODD, min_size=2)], http=0, listen=False) as server:
        client, go = server.client(), threading.Event()
        client.insert(np.float32(1), {"replay": 1.0})
        writer = threading.Thread(target=lambda: go.wait(PATIENT) and client.insert(np.float32(2), {"replay": 1.0}))
        writer.start()
        yield server, client, go
        go.set()
        client.reset("replay")  # what waits goes in
        writer.join(PATIENT)


def test_a_table_has_a_card_under_its_name_whatever_that_is(page, blocked):
    show(page, blocked[0])
    expect(card(page, "replay")).to_contain_text("1 of 1 item")
    expect(page.get_by_role("article").nth(1)).to_contain_text(ODD)
    expect(page.locator("#planted")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("ready")


def test_a_blocked_writer_appears_with_its_reason_and_disappears(page, blocked):
    server, client, go = blocked
    show(page, server)
    shown = card(page, "replay")
    expect(shown).to_contain_text("No request waits")
    go.set()
    expect(shown).to_contain_text(re.compile(r"1 insert waits, for \S+ m?s"))
    expect(shown).to_contain_text("1 more sample is needed")
    assert client.sample_batch("replay", 1).data == 1
    expect(shown).to_contain_text("No request waits")


def test_a_number_has_the_word_in_its_number(page, blocked):
    show(page, blocked[0])
    expect(card(page, "replay")).to_contain_text("1 sample per insert; inserts are 1 sample ahead, 0 to 1 are allowed")
    expect(page.get_by_role("article").nth(1)).to_contain_text("samples from 2 items on; no ratio is kept")
    for number, words in ((0, "0 inserts"), (1, "1 insert"), (2, "2 inserts"), (1200, "1,200 inserts")):
        assert page.evaluate(f"counted({number}, 'insert')") == words
    assert page.evaluate("counted(1.5, 'sample', short(1.5))") == "1.5 samples"
    assert page.evaluate("counted(null, 'insert', '-')") == "- inserts"
    assert page.evaluate("waits('sample', {waiting: 3, first_seconds: 2})") == "3 samples wait, the first for 2 s"
    assert page.evaluate("[999, 999.6, 1500, 2.5e9].map(bytes)") == ["999 B", "1.00 kB", "1.50 kB", "2.50 GB"]


def test_a_training_run_is_shown_with_its_curve_and_whether_its_target_is_reached(page):
    figures = {
        "agent": "dqn", "env": ODD, "seed": 3, "env_steps": 2500, "updates": 600, "seconds": 9.0, "max_env_steps": 5000,
        "target_return": 475.0, "curve": [[1000, 2.0, 20.0], [2000, 5.0, 312.5]], "runner": "local",
        "activities": {"learn": 4.5, "act": 1.5},
    }  # fmt: skip
    with Server([uniform("t")], http=0, listen=False) as server:
        server.publish(figures)
        show(page, server)
        body = page.locator("body")
        for words in ("Greedy return 312.5 of 475", "seed 3", "4.5 s, 50 %", "3 s, 33 %"):
            expect(body).to_contain_text(words)  # the last one is other work
        expect(page.locator("polyline.insert").first).to_have_attribute(
            "points", re.compile(r"^150,[\d.]+ 300,[\d.]+$")
        )
        expect(page.locator("line.aim")).to_have_count(1)
        expect(page.locator("#planted")).to_have_count(0)
        server.publish({**figures, "confirmed": True})
        expect(body).to_contain_text("Target reached and confirmed: 312.5 of 475")


def test_the_seeds_of_a_sweep_are_shown_with_their_curves_in_one_picture(page):
    seeds = [
        {"seed": 3, "state": "confirmed", "env_steps": 2000, "updates": 5, "confirmed": True,
         "curve": [[1000, 1.0, 20.0], [2000, 2.0, 480.0]]},
        {"seed": 4, "state": ODD, "env_steps": 500, "updates": 1, "confirmed": False, "curve": [[500, 1.0, 9.5]]},
        {"seed": 5, "state": "has not begun"},
    ]  # fmt: skip
    sweep = {"agent": "dqn", "env": "E-v0", "env_steps": 2500, "updates": 6, "target_return": 475.0, "seeds": seeds}
    with PageServer(RunPage(0)) as server:
        server.publish(sweep)
        page.goto(server.url)
        body = page.locator("body")
        for words in ("dqn on E-v0, 3 seeds", "1 of 3 seeds confirmed", "480 of 475", "9.5 of 475", ODD, "2,500 env"):
            expect(body).to_contain_text(words)
        expect(page.locator("polyline.several")).to_have_count(2)
        expect(page.locator("polyline.several").first).to_have_attribute(
            "points", re.compile(r"^150,[\d.]+ 300,[\d.]+$")
        )
        expect(page.locator("#planted")).to_have_count(0)
        seeds[1] |= {"state": "confirmed", "confirmed": True}
        server.publish({**sweep, "seeds": seeds[:2]})
        expect(body).to_contain_text("2 of 2 seeds confirmed")


def test_the_shards_of_a_run_are_shown_with_their_chances_and_their_health(page):
    shards = [
        {"address": "10.0.0.1:8000", "present": True, "items": 1200, "bytes": 5000, "reconnects": 1, "restarts": 0,
         "chances": {"replay": 0.25, ODD: None}},
        {"address": ODD, "present": True, "problem": None, "chances": {"replay": 0.75}},
    ]  # fmt: skip
    run = {"agent": "dqn", "env": "E-v0", "env_steps": 1, "updates": 0}
    with Server([uniform("t")], http=0, listen=False) as server:
        server.publish(run)
        show(page, server)
        expect(card(page, "t")).to_be_visible()
        expect(page.get_by_role("link", name="2 shards")).to_have_count(0)
        server.publish({**run, "shards": shards})
        page.get_by_role("link", name="2 shards").click()
        first, second = (page.locator("#shards article").nth(at) for at in (0, 1))
        for words in ("10.0.0.1:8000", "reachable", "1,200 items", "5.00 kB", "1 reconnect", "replay25 %"):
            expect(first).to_contain_text(words)
        expect(second).to_contain_text(ODD)
        expect(second).to_contain_text("75 %")
        expect(card(page, "t")).to_be_hidden()
        server.publish({**run, "shards": [{**shards[0], "problem": "no space left"}, {**shards[1], "present": False}]})
        expect(second.locator("strong.bad")).to_have_text("not reachable")
        expect(first.locator("strong.bad")).to_have_text("no space left")
        expect(page.get_by_role("link", name="1 of 2 shards reachable")).to_be_visible()
        expect(page.locator("#planted")).to_have_count(0)
        page.get_by_role("link", name="All tables").click()
        expect(card(page, "t")).to_be_visible()


def test_the_clients_of_a_server_are_listed_while_they_are_connected(page):
    with Server([uniform("/clients")], http=0) as server, Client(server.address, transport="shared-memory") as client:
        client.info()
        show(page, server)
        page.get_by_role("link", name="1 client", exact=True).click()
        listed = page.locator("#clients tbody tr")
        expect(listed).to_have_count(1)
        expect(listed).to_contain_text("shared-memory")
        expect(listed).to_contain_text("ago")
        with Client(server.address, transport="grpc") as other:
            other.info()
            expect(listed).to_have_count(2)
            expect(page.locator("#clients")).to_contain_text("grpc")
        expect(listed).to_have_count(1)
        show(page, server, "#%2Fclients")  # the table of that name
        expect(page.locator("#view")).to_contain_text("uniform")
        expect(page.locator("#clients")).to_be_hidden()


def test_a_list_of_clients_that_is_cut_names_the_number_of_the_others(page):
    with Server([uniform("t")], http=0, listen=False) as server:
        show(page, server)
        expect(card(page, "t")).to_be_visible()
        one = {"name": ODD, "peer": ODD, "transport": None, "bytes_in_flight": 1500, "requests": 2,
               "seconds": 60, "silent_seconds": 2, "reconnects": 0}  # fmt: skip
        shown = "(found) => { byId('clients').hidden = false; byId('clients').replaceChildren(...clientList(found)); }"
        page.evaluate(shown, {"total": 1003, "clients": [one]})
        for words in ("1,003 clients", "not connected", "1.50 kB", "2 s ago", "1 min", "1,002 more", ODD):
            expect(page.locator("#clients")).to_contain_text(words)
        expect(page.locator("#planted")).to_have_count(0)


def test_numbers_move_while_the_server_works(page):
    with Server([uniform("t", 1000)], http=0, listen=False) as server:
        client, end = server.client(), threading.Event()

        def load():
            while not end.wait(0.01):
                client.insert(np.float32(1), {"t": 1.0})
                client.sample_batch("t", 2)

        worker = threading.Thread(target=load)
        worker.start()
        try:
            show(page, server)
            shown = card(page, "t")
            expect(shown.locator("span.insert")).to_have_text(re.compile(r"^[1-9][\d.]* inserts/s$"))
            expect(shown.locator("span.sample")).to_have_text(re.compile(r"^[1-9][\d.]* samples/s$"))
            expect(shown.locator("polyline.insert")).to_have_attribute("points", re.compile(r"^\S+ \S+ \S+"))
        finally:
            end.set()
            worker.join(PATIENT)
        expect(shown).to_contain_text(f"{client.info().tables['t'].current_size:,} of 1,000 items")


def test_items_are_shown_with_their_numbers_and_pictures(page):
    with Server([uniform("t")], http=0, listen=False) as server:
        with server.client().trajectory_writer(num_keep_alive_refs=3) as writer:
            for step in range(3):
                writer.append({"obs": np.full((8, 9), step, np.uint8), "reward": np.float32(2.5)})
            writer.create_item("t", 1.0, {name: column[-3:] for name, column in writer.history.items()})
            writer.flush()
        show(page, server, "#t")
        found = page.locator("#items")
        expect(found).to_contain_text("sampled 0 times")
        expect(found).to_contain_text("uint8 [3, 8, 9]")
        expect(found).to_contain_text("2.5 2.5 2.5")
        canvas = found.locator("canvas")
        expect(canvas).to_have_attribute("width", "9")
        pixel = "canvas => canvas.getContext('2d').getImageData(0, 0, 1, 1).data[0]"
        assert canvas.evaluate(pixel) == 0
        found.get_by_role("slider").press("ArrowRight")
        expect(found).to_contain_text("2 of 3")
        assert canvas.evaluate(pixel) == 1


def test_a_server_with_a_token_shows_a_login_and_nothing_else(page):
    with Server([uniform("t")], http=0, listen=False, token="open sesame") as server:
        show(page, server)
        field = page.get_by_label("Token of the server")
        expect(field).to_be_focused()
        field.fill("open")
        field.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The token is not the server's.")
        expect(page.get_by_role("article")).to_have_count(0)
        field.fill("open sesame")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(card(page, "t")).to_contain_text("0 of 10 items")
        expect(field).to_be_hidden()
        page.reload()
        expect(card(page, "t")).to_contain_text("0 of 10 items")
        expect(field).to_be_hidden()


def test_the_page_reconnects_to_a_server_that_restarts_and_reports_it(page):
    server = Server([uniform("t")], http=0, listen=False)
    address = server.http_address
    server.client().insert(np.float32(1), {"t": 1.0})
    show(page, server)
    expect(card(page, "t")).to_contain_text("1 of 10 items")
    server.stop()
    expect(page.get_by_role("alert")).to_contain_text("No connection to the server")
    expect(page.get_by_role("status")).to_have_text("no connection")
    with Server([uniform("u", 7)], http=address, listen=False):
        expect(page.get_by_role("alert")).to_have_text("The server was restarted.")
        expect(page.get_by_role("status")).to_have_text("ready")
        expect(card(page, "u")).to_contain_text("0 of 7 items")
        expect(page.get_by_role("article")).to_have_count(1)


def test_the_page_can_be_used_by_keyboard(page):
    with Server([uniform("a"), uniform("b")], http=0, listen=False) as server:
        server.client().insert(np.float32(1), {"b": 1.0})
        show(page, server)
        expect(card(page, "b")).to_be_visible()
        tab_to(page, page.get_by_role("link", name="b", exact=True))
        page.keyboard.press("Enter")
        expect(page.locator("#items")).to_contain_text("sampled 0 times")
        tab_to(page, page.get_by_label("Key"))
        page.keyboard.type("12")
        page.keyboard.press("Enter")
        expect(page.locator("#items")).to_contain_text("12")
        expect(page.locator("#items .bad")).to_be_visible()
        page.keyboard.press("Shift+Tab")
        expect(page.get_by_label("Order")).to_be_focused()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(card(page, "a")).to_be_visible()


def tab_to(page, target):
    """Presses Tab until the target has the focus, which can be seen."""
    for _ in range(20):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            assert target.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
            return
    raise AssertionError("twenty times Tab, and the target never had the focus")
