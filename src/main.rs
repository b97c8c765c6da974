//! The `tollgate` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate::cli::main()
}
