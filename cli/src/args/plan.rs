//! The command that plans memory.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::paths::{file_to_write, model_to_read};
use super::{ReadArgs, size};

#[derive(Debug, Args)]
#[command(after_help = "\
Steps count from 0 in the order in which the nodes run. A list of blocks names its columns in the first \
line: id (or buffer, buffer_id), lower (or start, begin), upper, size, and if wanted alignment and offset; a \
block is needed from step lower to the step before upper. In place of upper, end is the last step itself.\n\n\
Exit code: 1 when the plan does not fit --capacity.")]
pub struct PlanArgs {
    /// The model
    #[arg(value_parser = model_to_read(), required_unless_present = "csv_in")]
    pub model: Option<PathBuf>,
    /// Plan the blocks listed in FILE, in MiniMalloc's format, in place of a model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "dim"])]
    pub csv_in: Option<PathBuf>,
    /// Set the dimension NAME to N. A dimension without a name is called by its input and position:
    /// 'image[0]=1'. May be given several times
    #[arg(long, value_name = "NAME=N", value_parser = dim)]
    pub dim: Vec<(String, usize)>,
    /// Fail when more than N bytes are needed; K, M and G are powers of 1024
    #[arg(long, value_name = "N", value_parser = size)]
    pub capacity: Option<u64>,
    /// Search at most this long for a shorter plan; stop when the plan fits --capacity or is the
    /// shortest
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub search: Option<Duration>,
    /// How many tensors to list, the largest first; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Draw the plan, offset against step, in FILE, which is replaced
    #[arg(long, value_name = "FILE", value_parser = file_to_write())]
    pub svg: Option<PathBuf>,
    /// Print the blocks and their offsets as MiniMalloc does
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print the plan as JSON, with all tensors
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// A name and a size: `batch=1`. The name may contain `=`.
pub fn dim(text: &str) -> Result<(String, usize), String> {
    let pair = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, size) = pair.ok_or("not a name and a size such as batch=1")?;
    let digits = Some(size).filter(|size| size.bytes().all(|byte| byte.is_ascii_digit()));
    let size = digits.and_then(|digits| digits.parse().ok());
    Ok((name.to_owned(), size.ok_or("the size is not a number such as 1")?))
}

/// A time in seconds: `10`, `0.5`.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "not a number of seconds such as 10 or 0.5".to_owned())
}
