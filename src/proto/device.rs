//! How a model is spread over devices.

use crate::wire::{Str, messages};

messages! {
    /// A group of devices.
    message DeviceConfigurationProto {
        /// The name that nodes refer to.
        1 name: Option<Str>,
        /// How many devices there are.
        2 num_devices: Option<i32>,
        /// Their names, if they have any.
        3 device: Vec<Str>,
    }

    /// How a node is spread over a group of devices.
    message NodeDeviceConfigurationProto {
        /// The name of the group.
        1 configuration_id: Option<Str>,
        /// How its inputs and outputs are.
        2 sharding_spec: Vec<ShardingSpecProto>,
        /// The pipeline stage it runs in.
        3 pipeline_stage: Option<i32>,
    }

    /// How a tensor is spread over devices.
    message ShardingSpecProto {
        /// The tensor.
        1 tensor_name: Option<Str>,
        /// The devices; a negative number is a key of the map.
        2 device: Vec<i64>,
        /// Groups of devices that each hold the same part.
        3 index_to_device_group_map: Vec<IntIntListEntryProto>,
        /// The axes that are cut.
        4 sharded_dim: Vec<ShardedDimProto>,
    }

    /// How an axis is cut.
    message ShardedDimProto {
        /// The axis.
        1 axis: Option<i64>,
        /// The cuts, one inside the other.
        2 simple_sharding: Vec<SimpleShardedDimProto>,
    }

    /// One cut of an axis into equal parts.
    message SimpleShardedDimProto {
        oneof dim: Dim {
            /// The length of the axis.
            1 dim_value: DimValue(i64),
            /// The name of that length.
            2 dim_param: DimParam(Str),
        }
        /// The number of parts.
        3 num_shards: Option<i64>,
    }

    /// A number and the numbers it stands for.
    message IntIntListEntryProto {
        /// The number.
        1 key: Option<i64>,
        /// What it stands for.
        2 value: Vec<i64>,
    }
}
