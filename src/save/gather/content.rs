//! What a save writes: the container's graph and weights, after the changes that its options ask
//! for.
//!
//! [`SaveOptions::externalize`] changes no graph: the tensors that leave it are remembered by their
//! positions, and the encoder writes their new messages in place of those of the graph. Inlining
//! makes a new graph, in which these tensors get their handles before functions are copied. So does
//! storing digests, and leaving those of an earlier save out.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::container::externalize::{Outgoing, set_handles};
use crate::container::{Container, Handle, SharedModel};
use crate::error::Result;
use crate::files::external_data::{has_unknown_keys, remove_unknown_keys};
use crate::graph::inline::{Inlined, inline_functions};
use crate::graph::stored_digests::{has_digests, remove_digests};
use crate::graph::traversal::{self, Position};
use crate::save::gather::weights::{GatheredWeights, NotLoaded};
use crate::save::options::SaveOptions;
use crate::save::options::weight_files::WeightFiles;
use crate::wire::Message;

/// A container as it is saved.
pub(crate) struct Content<'c> {
    /// The container, with initializers for the tensors that leave the graph.
    pub(crate) container: Cow<'c, Container>,
    model: SharedModel,
    /// The inline tensors of the model that are written behind a handle.
    moved: HashMap<Position, Handle>,
    pub(crate) inlined: Option<Inlined>,
}

impl<'c> Content<'c> {
    /// `container` with the changes of `options`. Neither its graph nor its weights are copied,
    /// except that inlining and digests make a new graph.
    pub(crate) fn new(container: &'c Container, options: &SaveOptions) -> Result<Self> {
        container.check_nesting()?;
        let (container, model) = (Cow::Borrowed(container), container.model.clone());
        let mut content = Self { container, model, moved: HashMap::new(), inlined: None };
        if options.externalize {
            let (outgoing, _) = content.container.outgoing(&options.buffers.into())?;
            content.move_out(outgoing);
        }
        if let Some(inlining) = &options.inline_functions {
            let moved = std::mem::take(&mut content.moved);
            if !moved.is_empty() {
                set_handles(&mut content.model, &moved);
            }
            let inlining = inlining.clone().limits(content.container.limits);
            content.inlined = Some(inline_functions(&mut content.model, inlining)?);
            content.model.check_nesting(&content.container.limits)?;
        }
        content.set_digests(options.digests)?;
        Ok(content)
    }

    /// Stores the digests of what is saved with it, if they are `wanted`. Those of an earlier save
    /// may be of other weights and never stay.
    fn set_digests(&mut self, wanted: bool) -> Result<()> {
        if wanted {
            self.drop_unknown_keys();
            let initializers = self.container.initializers.clone();
            let model = self.model.clone();
            let saved = Container { model, initializers, ..Container::default() };
            let digest = saved.digests()?;
            drop(saved);
            digest.store_in(&mut self.model);
        } else if has_digests(&self.model) && !self.container.is_stripped() {
            // What was stripped is known by them, and a change of the model has removed them.
            remove_digests(&mut self.model);
        }
        Ok(())
    }

    /// Drops entries of external data that no reader finds in what is saved, and that nothing has a
    /// digest with.
    fn drop_unknown_keys(&mut self) {
        if traversal::iter(&self.model).any(|(_, tensor)| has_unknown_keys(tensor)) {
            let tensors = traversal::iter_mut(&mut self.model).map(|(_, tensor)| tensor);
            tensors.filter(|tensor| has_unknown_keys(tensor)).for_each(remove_unknown_keys);
        }
    }

    fn move_out(&mut self, outgoing: Vec<Outgoing>) {
        if outgoing.is_empty() {
            return;
        }
        let initializers = &mut self.container.to_mut().initializers;
        for Outgoing { position, handle, initializer } in outgoing {
            self.moved.insert(position, handle.clone());
            initializers.insert(handle, initializer);
        }
    }

    /// The graph; its external tensors name handles.
    #[cfg(feature = "safetensors")]
    pub(crate) fn model(&self) -> &crate::proto::ModelProto {
        &self.model
    }

    pub(crate) fn shared_model(&self) -> SharedModel {
        self.model.clone()
    }

    /// The weights that a save with `options` has to place.
    pub(crate) fn weights_to_save(&self, options: &SaveOptions) -> Result<GatheredWeights<'_>> {
        if options.weight_files != WeightFiles::Embedded {
            return self.weights(NotLoaded::Stay);
        }
        let mut weights = self.weights(NotLoaded::Refuse)?;
        weights.make_inline(|_| true);
        Ok(weights)
    }

    /// The weights, each resolved once.
    pub(crate) fn weights(&self, not_loaded: NotLoaded) -> Result<GatheredWeights<'_>> {
        GatheredWeights::resolve(&self.container, &self.model, &self.moved, not_loaded)
    }
}
