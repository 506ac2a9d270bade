//! Where the models of jobs are: in a folder, and in a store where the build has them.

use crate::support::{Folder, Run};

/// Runs a call whose words have no spaces, where the store of URLs is, if there is one.
pub trait Place {
    /// What OUT is called.
    fn out(&self) -> &'static str;

    fn call(&self, folder: &Folder, words: &[&str]) -> Run;

    /// Puts the model `name` of the folder in place of OUT, whose weights files stay.
    fn replace(&self, folder: &Folder, name: &str);

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
}

/// A folder, and a store where the build has them.
pub fn places() -> Vec<Box<dyn Place>> {
    vec![
        Box::new(Here),
        #[cfg(feature = "stores")]
        Box::new(crate::store_server::Server::new()),
    ]
}
