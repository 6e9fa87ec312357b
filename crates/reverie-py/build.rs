//! Takes the docstrings of the stub, `python/reverie/_native.pyi`, for `stub!`: what `help()` shows is what an editor
//! shows, and is written once.

use std::path::{Path, PathBuf};
use std::{env, fs};

const QUOTES: &str = "\"\"\"";

fn main() {
    let variable = |name| PathBuf::from(env::var(name).expect("cargo sets it"));
    let stub = variable("CARGO_MANIFEST_DIR").join("../../python/reverie/_native.pyi");
    println!("cargo::rerun-if-changed={}", stub.display());
    let text = fs::read_to_string(&stub).unwrap_or_else(|error| panic!("{}: {error}", stub.display()));
    write_docs(&text, &variable("OUT_DIR"));
}

/// One file for each method that has a docstring, `Class.method`; of overloads the first that has one.
fn write_docs(stub: &str, folder: &Path) {
    let (mut class, mut method) = (String::new(), String::new());
    let mut lines = stub.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = name_behind("class ", line) {
            (class, method) = (name.to_owned(), String::new());
        } else if let Some(name) = line.strip_prefix("    ").and_then(|line| name_behind("def ", line)) {
            name.clone_into(&mut method);
        } else if let Some(first) = line.strip_prefix("        ").and_then(|line| line.strip_prefix(QUOTES))
            && !method.is_empty()
        {
            let doc = docstring(first, &mut lines);
            let path = folder.join(format!("{class}.{}", std::mem::take(&mut method)));
            fs::write(&path, doc).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// The name in `def name(...` or `class Name:`.
fn name_behind<'a>(word: &str, line: &'a str) -> Option<&'a str> {
    line.strip_prefix(word)?.split(['(', ':']).next()
}

/// The text up to the closing quotes, without the indentation of its lines.
fn docstring<'a>(first: &'a str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let (mut doc, mut line) = (String::new(), first);
    loop {
        match line.strip_suffix(QUOTES) {
            Some(last) => break (doc + last.trim_end()).trim_end().to_owned(),
            None => doc = doc + line + "\n",
        }
        let next = lines.next().expect("a docstring ends");
        line = next.strip_prefix("        ").unwrap_or(next.trim_start());
    }
}
