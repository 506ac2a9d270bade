//! Where the models of jobs are: in a folder, and in a store where the build has them.

use crate::support::{Folder, Run};

/// Runs a call whose words have no spaces, where the store of URLs is, if there is one.
pub trait Place {
    /// What OUT is called.
    fn out(&self) -> &'static str;

    fn call(&self, folder: &Folder, words: &[&str]) -> Run;

    /// Puts the model `name` of the folder in place of OUT, whose weights files stay.
    fn replace(&self, folder: &Folder, name: &str);

    /// Commits the job whose folder is `job`, and leaves of it what a kill at the end does.
    fn commit_but_for_the_end(&self, folder: &Folder, job: &str);

    /// Empties the receipt of part 1 of the job whose folder is `job`.
    fn damage_receipt(&self, folder: &Folder, job: &str);

    fn run(&self, folder: &Folder, line: &str) -> Run {
        let line = line.replace("OUT", self.out());
        self.call(folder, &line.split_whitespace().collect::<Vec<_>>())
    }
}

struct Here;

impl Place for Here {
    fn out(&self) -> &'static str {
        "o.onnx"
    }

    fn call(&self, folder: &Folder, words: &[&str]) -> Run {
        folder.run(words)
    }

    fn replace(&self, folder: &Folder, name: &str) {
        std::fs::copy(folder.path(name), folder.path(self.out())).unwrap();
    }

    fn commit_but_for_the_end(&self, folder: &Folder, job: &str) {
        // What no job put there keeps its folder.
        let kept = folder.path(job).join("kept");
        std::fs::write(&kept, "").unwrap();
        assert_eq!(folder.run(&["job", "commit", job]).code(), 0);
        std::fs::remove_file(kept).unwrap();
    }

    fn damage_receipt(&self, folder: &Folder, job: &str) {
        std::fs::write(folder.path(job).join("receipts/part-00001.json"), "").unwrap();
    }
}

#[cfg(feature = "stores")]
impl Place for crate::store_server::Server {
    fn out(&self) -> &'static str {
        "s3://b/o.onnx"
    }

    fn call(&self, folder: &Folder, words: &[&str]) -> Run {
        self.run(folder, words)
    }

    fn replace(&self, folder: &Folder, name: &str) {
        self.put("o.onnx", std::fs::read(folder.path(name)).unwrap());
    }

    fn commit_but_for_the_end(&self, folder: &Folder, job: &str) {
        let mut objects = self.state().objects.clone();
        objects.retain(|key, _| key.contains(".job-"));
        self.run(folder, &["job", "commit", job]).done();
        self.state().objects.extend(objects);
    }

    fn damage_receipt(&self, _: &Folder, job: &str) {
        let receipts: Vec<_> =
            self.names().into_iter().filter(|it| it.contains("part-00001")).collect();
        let [receipt] = &receipts[..] else { panic!("{job}: {receipts:?}") };
        self.put(receipt, Vec::new());
    }
}

/// A folder, and a store where the build has them.
pub fn places() -> Vec<Box<dyn Place>> {
    vec![
        Box::new(Here),
        #[cfg(feature = "stores")]
        Box::new(crate::store_server::Server::new()),
    ]
}
