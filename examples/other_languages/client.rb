# A client of Reverie in Ruby: describes the server, inserts rows, draws a batch.
#
#   grpc_tools_ruby_protoc -I proto --ruby_out=OUT --grpc_out=OUT reverie/v1/replay.proto
#   ruby examples/other_languages/client.rb HOST:PORT OUT TABLE
#
# Debian: apt-get install ruby-grpc ruby-grpc-tools. The messages are explained in proto/reverie/v1/replay.proto, this
# client in docs/guides/clients-in-other-languages.md.
address, generated, name = ARGV
$LOAD_PATH.unshift(generated)
require "reverie/v1/replay_services_pb"
include Reverie::V1

ROWS = 4
stub = Replay::Stub.new(address, :this_channel_is_insecure)
server = stub.describe(DescribeRequest.new(protocol: 2))
table = server.tables.index { |options| options.name == name } or abort "there is no table #{name}"
puts "server #{server.version}: #{server.tables.map(&:name).join(', ')}"

# One chunk of ROWS steps with one column, x: 3 float32. Each step is an item.
values = (0...ROWS).map { |row| [row, row + 0.5, -row] }
pattern = PatternDef.new(
  pattern: 1,
  timestep: true,
  structure: Structure.new(nodes: [Node.new(dict: Dict.new(keys: [FieldKey.new(text: "x")])), Node.new]), # {"x": leaf}
  columns: [
    PatternColumn.new(
      spec: ColumnSpec.new(path: "x", dtype: "float32", shape: [3]),
      range: CellRange.new(start: 0, step: 1, len: 1),
      squeeze: true
    )
  ]
)
chunk = ChunkCells.new(
  chunk: 1, first: 0, cells: ROWS, offset: 0,
  layout: ChunkLayout.new(widths: [12], itemsizes: [4], capacity: ROWS)
)
# Each item: form, anchor, chunk, priority, episode, stream. Little-endian, of 4 bytes (L<), of 8 (Q<), float64 (E).
items = (0...ROWS).map { |row| [1, row, 1, 1.0, 0, 0].pack("L<L<Q<EL<L<") }.join
insert = Insert.new(
  first_id: 1,
  runs: [InsertRun.new(table: table, requests: 1, items: ROWS)],
  patterns: [pattern], chunks: [chunk], items: items,
  bulk: Bulk.new(inline: values.flatten.pack("e*")) # little-endian float32
)
stub.call(ClientMessage.new(insert: insert)).each do |message|
  case message.body
  when :inserted then puts "inserted #{message.inserted.keys.length} items"
  when :reply then abort "refused: #{message.reply.error.kind}"
  end
end

# A batch of 2: the bulk bytes begin with seven numbers per draw, and the outputs follow at multiples of 64.
draws = 2
sample = Sample.new(parts: [SamplePart.new(table: name, num_samples: draws)])
batch, bytes = nil, "".b
stub.call(ClientMessage.new(request: Request.new(id: 1, timeout: 5.0, sample: sample))).each do |message|
  case message.body
  when :batch
    batch = message.batch
    bytes = "\0".b * batch.bulk_bytes
  when :part then bytes[message.part.offset, message.part.data.bytesize] = message.part.data
  when :reply then abort "refused: #{message.reply.error.kind}"
  end
end
offset = 7 * 8 * draws
batch.new_head.outputs.each do |output|
  offset = (offset + 63) / 64 * 64
  size = output.shape.reduce(output.itemsize, :*)
  rows = bytes[offset, size].unpack("e*").each_slice(3).to_a
  puts "sampled #{output.path} #{output.shape.to_a.inspect}: #{rows.inspect}"
  abort "a row that was not inserted" unless rows.all? { |row| values.include?(row.map(&:to_f)) }
  offset += size
end
