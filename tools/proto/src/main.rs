//! Compiles the proto without `protoc`, into the folder that is named: `make proto` names that of `reverie-net`.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: reverie-proto FOLDER")?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let descriptors = protox::compile(["reverie/v1/replay.proto"], [root])?;
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".reverie.v1.Bulk.inline")
        .bytes(".reverie.v1.Part.data")
        // A request is kept until it is confirmed: to send it again copies no list.
        .bytes(".reverie.v1.Mutate")
        // Lists of numbers, which are read where they arrived.
        .bytes(".reverie.v1.Insert.items")
        .bytes(".reverie.v1.BodyPart")
        .bytes(".reverie.v1.BodyDef")
        .bytes(".reverie.v1.CellList")
        .bytes(".reverie.v1.Insert.released")
        .bytes(".reverie.v1.Get")
        .bytes(".reverie.v1.Keys")
        .bytes(".reverie.v1.Received")
        // An empty entry of a list has two bytes on the wire: these make it small in memory, see `head.rs`.
        .boxed(".reverie.v1.ChunkCells.layout")
        .boxed(".reverie.v1.PatternColumn.spec")
        .boxed(".reverie.v1.Node.kind.record")
        // Few batches are of a shard, and the message is moved about with room for it.
        .boxed(".reverie.v1.Batch.tally")
        .build_transport(false)
        .codec_path("crate::grpc::codec::Codec")
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}
