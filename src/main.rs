//! The `tollgate` binary.

use std::process::ExitCode;

/// A request makes some hundred small allocations, freed on another thread as often as not: the
/// system's allocator took a fifth of all CPU time (`make bench`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::main()
}
