//! The commands that write to stores and look at them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::paths::{model_to_read, url};
use super::{LayoutArgs, MovingArgs, ReadArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
Weights files are sent first, under names of their content (m-0123456789abcdef.onnx.data); one that is there is not \
sent again. The model follows by one request, so a reader sees the old model or the new one, whole. Where this is \
killed, the old model stays, and sweep removes what was sent.\n\n\
The model that is there when this begins is replaced, and no other: where somebody else publishes meanwhile, this \
fails and nothing is replaced. Credentials come from the environment; docs/stores.md has the variables.")]
pub struct PublishArgs {
    /// The model to read, a file or a URL
    #[arg(value_name = "IN", value_parser = model_to_read())]
    pub input: PathBuf,
    /// Where to publish it: s3://, gs:// or az://
    #[arg(value_name = "URL", value_parser = url())]
    pub url: String,
    #[command(flatten)]
    pub publication: PublicationArgs,
    #[command(flatten)]
    pub trial: TrialArgs,
    #[command(flatten)]
    pub moving: MovingArgs,
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Store digests of the model and of its tensors, which check --digests compares
    #[arg(long)]
    pub digests: bool,
    /// Continue with --digests even if the input does not match its stored digests
    #[arg(long, requires = "digests")]
    pub ignore_stored_digests: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// How a model is published.
#[derive(Debug, Args)]
pub struct PublicationArgs {
    #[command(flatten)]
    pub replacing: ReplacingArgs,
    /// Fail where there is a model
    #[arg(long, conflicts_with_all = ["expect", "unconditional"])]
    pub create: bool,
    /// Keep N versions of the model beside it, this one included, for rollback; older ones are
    /// removed [default: none is made or removed]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub keep: usize,
}

/// Which model is replaced.
#[derive(Debug, Args)]
pub struct ReplacingArgs {
    /// Replace the model only where it has this tag, as publish and --json tell it
    #[arg(long, value_name = "E_TAG", conflicts_with = "unconditional")]
    pub expect: Option<String>,
    /// Replace the model without a condition: for stores that ignore conditions. Of two who publish
    /// at the same time, one then overwrites the other, and both are told that they succeeded
    #[arg(long)]
    pub unconditional: bool,
}

/// Whether anything is done, and how it is told.
#[derive(Debug, Args)]
pub struct TrialArgs {
    /// Print what would be done and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "No weights are sent, and the version stays. `versions URL` lists the versions."
)]
pub struct RollbackArgs {
    /// The model
    #[arg(value_name = "URL", value_parser = url())]
    pub url: String,
    /// The version that publish --keep left beside it: its URL, or its time
    #[arg(value_name = "VERSION")]
    pub earlier: String,
    #[command(flatten)]
    pub replacing: ReplacingArgs,
    #[command(flatten)]
    pub trial: TrialArgs,
}

#[derive(Debug, Args)]
pub struct VersionsArgs {
    /// The model
    #[arg(value_name = "URL", value_parser = url())]
    pub url: String,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Only files are removed that publish made, by their names. Every model below URL is read first, and those of the \
folders above: where one cannot be read, nothing is removed. Less than a week is safe only where nobody publishes \
meanwhile. Jobs that nobody has committed or aborted are named, and what they have written stays.")]
pub struct SweepArgs {
    /// The folder
    #[arg(value_name = "URL", value_parser = url())]
    pub url: String,
    /// How old a file has to be, in days, hours, minutes or seconds, such as 12h
    #[arg(long, value_name = "AGE", default_value = "7d", value_parser = age)]
    pub older_than: Duration,
    /// Delete the files; without this option they are listed
    #[arg(long)]
    pub delete: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StoresArgs {
    #[command(subcommand)]
    pub command: StoresCommand,
}

#[derive(Debug, Subcommand)]
pub enum StoresCommand {
    /// Try what a store can do
    Probe(ProbeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A small object is written there and deleted again.\n\n\
Exit code: 0 when writers of one model notice each other there, 1 when not, 2 when the store could not be tried.")]
pub struct ProbeArgs {
    /// A model or a folder in the store
    #[arg(value_name = "URL", value_parser = url())]
    pub url: String,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// What is secret in an option of a store has one of these in its name.
const SECRET: [&str; 8] =
    ["key", "secret", "token", "password", "sas", "credential", "authorization", "bearer"];

/// An option of stores, or why it is none.
pub type StoreOption = Result<(String, String), String>;

/// Takes an option apart. It fails later, as the failure of an argument repeats the argument, which
/// may be secret.
pub fn given_store_option(text: &str) -> Result<StoreOption, Infallible> {
    Ok(store_option(text))
}

/// An option of stores that is no secret: `aws_region=eu-west-1`.
fn store_option(text: &str) -> StoreOption {
    let given = text.split_once('=').filter(|(name, _)| !name.is_empty());
    // The text may be a secret, so that nothing of it but a name is repeated.
    let (name, value) = given.ok_or("not NAME=VALUE, such as aws_region=eu-west-1")?;
    let lower = name.to_ascii_lowercase();
    let is_address = value.contains("://") && value.contains('@');
    if is_address || SECRET.iter().any(|word| lower.contains(word)) {
        return Err(format!(
            "`{name}` is a secret: give it by the environment, not by an argument"
        ));
    }
    Ok((lower, value.to_owned()))
}

/// A length of time: `7d`, `12h`, `30m`, `45s`.
fn age(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1)];
    let found = UNITS.iter().find_map(|(unit, seconds)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*seconds)
    });
    found
        .map(Duration::from_secs)
        .ok_or_else(|| "not a time such as 7d, 12h, 30m or 45s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_no_options() {
        for (text, expected) in [
            ("aws_region=eu", Some(("aws_region", "eu"))),
            ("AWS_ENDPOINT_URL=http://h:1", Some(("aws_endpoint_url", "http://h:1"))),
            ("allow_http=a=b", Some(("allow_http", "a=b"))),
            ("aws_secret_access_key=x", None),
            ("AWS_SESSION_TOKEN=x", None),
            ("azure_storage_sas_key=x", None),
            ("azure_client_secret=x", None),
            ("proxy_url=http://me:x@h", None),
            ("=x", None),
            ("x", None),
        ] {
            let found = store_option(text);
            let found = found.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{text}");
            assert!(
                found.err().is_none_or(|error| !error.contains("=x") && !error.contains("me:"))
            );
        }
    }

    #[test]
    fn ages_have_units() {
        for (text, seconds) in [
            ("7d", Some(604_800)),
            ("12h", Some(43_200)),
            ("30m", Some(1_800)),
            ("0s", Some(0)),
            ("7", None),
            ("d", None),
            ("-1d", None),
            ("99999999999999999d", None),
        ] {
            assert_eq!(age(text).ok().map(|age| age.as_secs()), seconds, "{text}");
        }
    }
}
