//! The names that can be seen at a point of a walk over graphs.

use foldhash::HashMap;

/// The names that can be seen at a point of the walk, each with the innermost graph that defines
/// it.
#[derive(Default)]
pub(super) struct Names<'m> {
    depths: HashMap<&'m [u8], usize>,
    /// For each graph around the point, what its definitions took the place of.
    hidden: Vec<Vec<(&'m [u8], Option<usize>)>>,
}

impl<'m> Names<'m> {
    pub(super) fn enter(&mut self) {
        self.hidden.push(Vec::new());
    }

    pub(super) fn leave(&mut self) {
        for (name, before) in self.hidden.pop().into_iter().flatten().rev() {
            match before {
                Some(depth) => self.depths.insert(name, depth),
                None => self.depths.remove(name),
            };
        }
    }

    /// Defines `name` in the innermost graph.
    pub(super) fn define(&mut self, name: &'m [u8]) {
        let depth = self.hidden.len();
        let before = self.depths.insert(name, depth);
        if let Some(hidden) = self.hidden.last_mut()
            && before != Some(depth)
        {
            hidden.push((name, before));
        }
    }

    pub(super) fn is_here(&self, name: &[u8]) -> bool {
        self.depths.get(name) == Some(&self.hidden.len())
    }

    pub(super) fn is_visible(&self, name: &[u8]) -> bool {
        self.depths.contains_key(name)
    }
}
