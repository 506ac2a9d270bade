//! Messages that say how a model is distributed over devices.

use crate::proto::wire::{Str, messages};

messages! {
    /// A group of devices.
    message DeviceConfigurationProto {
        /// The name that nodes refer to.
        1 name: Option<Str>,
        /// How many devices there are.
        2 num_devices: Option<i32>,
        /// The names of the devices, if they have names.
        3 device: Vec<Str>,
    }

    /// How a node is distributed over a group of devices.
    message NodeDeviceConfigurationProto {
        /// The name of the group.
        1 configuration_id: Option<Str>,
        /// How its inputs and outputs are sharded.
        2 sharding_spec: Vec<ShardingSpecProto>,
        /// The pipeline stage that it runs in.
        3 pipeline_stage: Option<i32>,
    }

    /// How a tensor is sharded over devices.
    message ShardingSpecProto {
        /// The name of the tensor.
        1 tensor_name: Option<Str>,
        /// The devices. A negative number is a key of `index_to_device_group_map`.
        2 device: Vec<i64>,
        /// Groups of devices; all devices of a group hold the same shard.
        3 index_to_device_group_map: Vec<IntIntListEntryProto>,
        /// The axes that are split.
        4 sharded_dim: Vec<ShardedDimProto>,
    }

    /// How an axis is split.
    message ShardedDimProto {
        /// The axis.
        1 axis: Option<i64>,
        /// The splits, each within the shards of the one before.
        2 simple_sharding: Vec<SimpleShardedDimProto>,
    }

    /// One split of an axis into equal shards.
    message SimpleShardedDimProto {
        oneof dim: Dim {
            /// The length of the axis.
            1 dim_value: DimValue(i64),
            /// The name of a symbolic length.
            2 dim_param: DimParam(Str),
        }
        /// The number of shards.
        3 num_shards: Option<i64>,
    }

    /// A map entry from a number to numbers.
    message IntIntListEntryProto {
        /// The key.
        1 key: Option<i64>,
        /// The values.
        2 value: Vec<i64>,
    }
}
