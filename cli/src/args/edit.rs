//! The command that changes names and metadata.

use clap::Args;

use super::{InOut, PackedArgs, WriteArgs, pair, setting};

#[derive(Debug, Args)]
#[command(after_help = "\
All options for metadata and names of values may be given several times. Metadata is removed \
first, then set; inputs are renamed first, then outputs, then other values, each in the order given. A=B \
and K=V are split at the first `=`: a name that contains one can be given as B, not as A.\n\n\
A new name is put at every use, in subgraphs too. A name that another value has is refused. --verify \
compares the result with the edited model.\n\n\
Weights stay in their files when these are in OUT's folder or below it: then only the model is written. \
Where one of the files is a link, as in the cache of the Hugging Face Hub, or with --align, --align-large or --data-name, they go to one file beside OUT. Inline tensors \
stay inline.")]
pub struct EditArgs {
    #[command(flatten)]
    pub paths: InOut,
    /// Set the value of the metadata K to V
    #[arg(long, value_name = "K=V", value_parser = setting)]
    pub set_metadata: Vec<(String, String)>,
    /// Remove the metadata K
    #[arg(long, value_name = "K")]
    pub remove_metadata: Vec<String>,
    /// Set the name of the tool that made the model; the version of another one is removed. An
    /// empty name removes both
    #[arg(long, value_name = "NAME")]
    pub producer: Option<String>,
    /// Set the description of the model; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    pub doc_string: Option<String>,
    /// Set the name of the main graph
    #[arg(long, value_name = "NAME")]
    pub graph_name: Option<String>,
    /// Rename the input A of the model to B
    #[arg(long, value_name = "A=B", value_parser = pair)]
    pub rename_input: Vec<(String, String)>,
    /// Rename the output A of the model to B
    #[arg(long, value_name = "A=B", value_parser = pair)]
    pub rename_output: Vec<(String, String)>,
    /// Rename the value A to B: a weight, or what a node computes. A name in a subgraph has its
    /// scope before it in A (if_node.then_branch/w), not in B
    #[arg(long, value_name = "A=B", value_parser = pair)]
    pub rename_tensor: Vec<(String, String)>,
    #[command(flatten)]
    pub packed: PackedArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

impl EditArgs {
    /// Whether something is to be changed.
    pub fn is_given(&self) -> bool {
        let texts = [&self.producer, &self.doc_string, &self.graph_name];
        let pairs =
            [&self.set_metadata, &self.rename_input, &self.rename_output, &self.rename_tensor];
        !self.remove_metadata.is_empty()
            || texts.iter().any(|text| text.is_some())
            || pairs.iter().any(|pairs| !pairs.is_empty())
    }
}
