//! [`Container::declare`]: weights that are not here get a type and dimensions, so that others can
//! write them.

use std::collections::HashMap;

use crate::container::externalize::set_handles;
use crate::container::{Container, HandleNames};
use crate::error::Result;
use crate::files::external_data::{self, ExternalData, is_external, is_handle};
use crate::graph::traversal;
use crate::tensor::initializer::Initializer;

impl Container {
    /// Declares the weights of every external tensor that has none: behind its handle, or, where it
    /// names a file that was not loaded, behind a handle of its own. Returns how many. Tensors on
    /// one range of a file that was not loaded get weights of their own.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [4, 8], "#w"));
    /// graph.initializer.push(TensorProto::external("v", TensorProto::FLOAT, [8], "v.bin"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// assert_eq!(container.declare()?, 2);
    /// assert!(container.get("#v").unwrap().is_declared());
    /// assert_eq!(container.prepare("m.onnx", true)?.files()[0].bytes, 256 + 32); // at 0 and 256
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) when the model nests too deeply, and
    /// those of a tensor whose type or dimensions have no length, which has its name.
    pub fn declare(&mut self) -> Result<usize> {
        self.check_nesting()?;
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let (mut declared, mut handles) = (HashMap::new(), HashMap::new());
        for (place, tensor) in traversal::iter(&self.model).filter(|(_, it)| is_external(it)) {
            let named = |error: crate::Error| error.with_tensor(place.qualified_name(tensor));
            let entry = ExternalData::parse(tensor).map_err(named)?;
            if self.initializers.contains_key(entry.location.as_str()) {
                continue;
            }
            let (dtype, _) = external_data::layout(tensor).map_err(named)?;
            let weight = Initializer::declared(dtype, tensor.dims.clone()).map_err(named)?;
            let handle = match entry.location.parse() {
                Ok(handle) if is_handle(&entry.location) => handle,
                _ => {
                    let handle = names.name(&place, tensor);
                    handles.insert(place.position, handle.clone());
                    handle
                }
            };
            declared.entry(handle).or_insert(weight);
        }
        let count = declared.len();
        if !handles.is_empty() {
            set_handles(&mut self.model, &handles);
        }
        self.initializers.extend(declared);
        Ok(count)
    }
}
