//! Rewrites a model in parts, each written by a process of its own, and publishes the result.
//!
//!     cargo run -p onnx-container-store --example rewrite_in_parts -- \
//!         s3://a/m.onnx s3://b/half.onnx 8
//!
//! An engine would start the processes, on any machines: they know nothing but the URL of the job.

use std::error::Error;
use std::process::Command;

use onnx_container::DataType;
use onnx_container::job::Recast;
use onnx_container_store::job::{RemoteJob, Stores};
use onnx_container_store::{StoreUrl, is_url};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--write", job, part] => {
            let job = RemoteJob::open(&StoreUrl::parse(job)?, Stores::new())?;
            job.write(part.parse()?)?;
            Ok(())
        }
        [source, target, parts] if is_url(target) => {
            rewrite(source, &StoreUrl::parse(target)?, parts.parse()?)
        }
        _ => Err("arguments: SOURCE TARGET PARTS; TARGET is a URL".into()),
    }
}

fn rewrite(source: &str, target: &StoreUrl, parts: usize) -> Result<(), Box<dyn Error>> {
    let recast = Some(Recast::new(DataType::Float16));
    let job = RemoteJob::rewrite(source, target, Stores::new(), recast, parts)?;
    let folder = job.folder().to_string();
    let program = std::env::current_exe()?;
    let write =
        |part: usize| Command::new(&program).args(["--write", &folder, &part.to_string()]).spawn();
    let writers: Vec<_> = job.parts().map(write).collect::<Result<_, _>>()?;
    for mut writer in writers {
        // What a process did not write is written again by any other.
        writer.wait()?;
    }
    for part in job.status()?.missing {
        job.write(part)?;
    }
    let committed = job.commit()?;
    println!("{} {}", committed.published.url, committed.digest);
    Ok(())
}
