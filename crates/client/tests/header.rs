//! The C header is what `src/c/` says; with `THUMPER_WRITE_HEADER` set it is written anew.

#![allow(clippy::unwrap_used)]

use std::path::Path;

#[test]
fn the_header_is_that_of_the_functions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = "/* The client of a served Thumper pool, for C. Made from src/c/: change that. */";
    let made = cbindgen::Builder::new()
        .with_src(here.join("src/c/mod.rs"))
        .with_language(cbindgen::Language::C)
        .with_header(text)
        .with_include_guard("THUMPER_H")
        .with_cpp_compat(true)
        .with_style(cbindgen::Style::Type)
        .with_documentation(true)
        .generate()
        .unwrap();
    let path = here.join("include/thumper.h");
    if std::env::var_os("THUMPER_WRITE_HEADER").is_some() {
        made.write_to_file(&path);
    }
    let mut bytes = Vec::new();
    made.write(&mut bytes);
    let there = std::fs::read(&path).unwrap_or_default();
    assert!(
        there == bytes,
        "run this test with THUMPER_WRITE_HEADER=1, and commit include/thumper.h"
    );
}
