//! The commands for a model with its weights files.

use std::path::{Path, PathBuf};

use clap::Args;

use super::paths::model_on_disk;
use super::{OldFiles, ReadArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
On one file system, nothing is copied. Weights files with a name that was made from the \
model's (m.onnx.data, m.onnx_data, m-00001-of-00003.onnx.data, m-WEIGHT.weight) follow its new \
name, and the model is changed to name them; others keep theirs, m.safetensors too. A file \
that another model needs stays, and the moved model gets a copy. So it does of a file that is \
a link, and the link is removed. Models that share a file have it once where they go.\n\n\
Where this is killed, the model is complete at one of the two places or at both.")]
#[command(override_usage = "onnx-container mv [OPTIONS] <FROM>... <TO>")]
pub struct MvArgs {
    #[command(flatten)]
    pub transfer: TransferArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The copy shares its bytes with the original where the file system can, and holes stay holes. \
Weights files with a name that was made from the model's, such as m.onnx.data, get one that is \
made from the name of the copy; others keep their names. In one folder, both models use these. \
Links are followed.")]
#[command(override_usage = "onnx-container cp [OPTIONS] <FROM>... <TO>")]
pub struct CpArgs {
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// From where, to where, and how.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The models, and then their new place: the new name of a model, or a folder. An existing
    /// model is replaced. Several models go to a folder
    // One list: as two arguments, the last name could not begin with a hyphen.
    #[arg(value_name = "PATH", required = true, num_args = 2.., value_parser = model_on_disk())]
    places: Vec<PathBuf>,
    /// Fail when a file would be replaced
    #[arg(long)]
    pub no_clobber: bool,
    #[command(flatten)]
    pub old: OldFiles,
    #[command(flatten)]
    pub place: PlaceArgs,
}

impl TransferArgs {
    /// The models.
    pub fn from(&self) -> &[PathBuf] {
        self.places.split_last().map_or(&[], |(_, from)| from)
    }

    /// Their new place. There always is one, because there are two paths.
    pub fn to(&self) -> &Path {
        self.places.last().map_or(Path::new(""), PathBuf::as_path)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Of a weights file that is a link the link is removed, and what it leads to stays. A file that \
another model needs stays: a model of its folder, or of a folder above.\n\n\
Where this is killed, the next command that opens the model puts its files back, or removes \
the rest.")]
pub struct RmArgs {
    /// The models
    #[arg(value_name = "MODEL", required = true, value_parser = model_on_disk())]
    pub models: Vec<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
All weights of the models go to one new file beside them, those of equal bytes once; inline tensors of 1024 \
bytes or more go there too. The models have to be in one folder. No file is replaced except the models.\n\n\
Where this is killed, all models are the old ones or all the new ones: the next command that opens one of \
them completes or undoes it.")]
pub struct ShareArgs {
    /// The models, two or more
    #[arg(value_name = "MODEL", required = true, num_args = 2.., value_parser = model_on_disk())]
    pub models: Vec<PathBuf>,
    /// Name of the new weights file beside the models [default: shared.onnx.data, with a number
    /// where that is taken]
    #[arg(long, value_name = "NAME")]
    pub data_name: Option<String>,
    #[command(flatten)]
    pub old: OldFiles,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The options of all of these.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Print what would be done and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until all files are flushed to the disk
    #[arg(long)]
    pub no_sync: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
