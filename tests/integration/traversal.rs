//! Every tensor is reached, in graph order.

use onnx_container::external_data::is_external;
use onnx_container::{Container, ExternalizeOptions, MmapChoice, traversal};

use crate::support::{EVERYWHERE, all_bytes, tensors_everywhere};

#[test]
fn every_place_is_visited_in_order() {
    let mut names = Vec::new();
    traversal::tensors(&tensors_everywhere(), |place, tensor| {
        names.push(place.qualified_name(tensor));
        Ok(())
    })
    .unwrap();
    assert_eq!(names, EVERYWHERE);
}

#[test]
fn both_walks_agree() {
    let mut model = tensors_everywhere();
    let (mut shared, mut exclusive) = (Vec::new(), Vec::new());
    traversal::tensors(&model, |place, tensor| {
        shared.push((place.qualified_name(tensor), place.site));
        Ok(())
    })
    .unwrap();
    traversal::tensors_mut(&mut model, |place, tensor| {
        exclusive.push((place.qualified_name(tensor), place.site));
        Ok(())
    })
    .unwrap();
    assert_eq!(shared, exclusive);
}

#[test]
fn all_of_them_go_out_and_come_back() {
    let model = tensors_everywhere();
    let before = all_bytes(&Container::new(model.clone()));
    let mut container = Container::new(model.clone());
    let report = container.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    assert_eq!(report.moved, EVERYWHERE.len());
    assert_eq!(container.len(), EVERYWHERE.len(), "every handle is its own");
    traversal::tensors(container.model(), |place, tensor| {
        assert!(is_external(tensor), "{}", place.qualified_name(tensor));
        Ok(())
    })
    .unwrap();
    assert_eq!(all_bytes(&container), before);

    for one_file in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        container.save(&path, one_file).unwrap();
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        assert_eq!(loaded.len(), EVERYWHERE.len());
        assert_eq!(all_bytes(&loaded), before);
        assert_eq!(loaded.embed().unwrap(), model, "nothing but the data changed");
    }
}
