//! Links libhakmem.a where the feature `hakmem` asks for it.

use std::env;

fn main() {
    println!("cargo:rerun-if-env-changed=HAKMEM_NATIVE_DIR");
    if env::var_os("CARGO_FEATURE_HAKMEM").is_none() {
        return;
    }
    let folder = env::var("HAKMEM_NATIVE_DIR")
        .expect("set HAKMEM_NATIVE_DIR to the folder that holds libhakmem.a");
    println!("cargo:rerun-if-changed={folder}/libhakmem.a");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=hakmem");
}
