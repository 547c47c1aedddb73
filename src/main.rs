//! The binary: parse, call the command, and the only exit.

/// Chosen for small allocations from many threads, which is what JSON is: a sixth more handoffs than with the
/// system's. Without huge pages, which made nothing faster and had 30 MB of an idle broker's resident for nothing.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[expect(clippy::disallowed_methods, reason = "this is the only exit")]
fn main() {
    std::process::exit(handoffd::cli::main());
}
