//! Turns a table of fields into messages.
//!
//! A line of the table is a line of a `.proto` file: number, name and type. Lines are in the order
//! of their numbers, which is the order in which the official writer writes. The members of a
//! `oneof` follow this order too; where a plain field comes between them, the later members follow
//! it in a second group, `and { ... }`.
//!
//! A `rare` group is written in the same way, but is not a group on the wire. Its fields are seldom
//! set and share one [`Rare`](super::Rare) struct, so that a message without them needs one word
//! for all of them. They are read and written as fields of the message.
//!
//! An enum is stored as its number: `enum name 0..=last` before the fields of a message says which
//! values it has, see [`closed`](super::closed).
//!
//! A message that is marked as `(recursive)` may hold messages of its own type, at some depth, see
//! [`depth`](super::depth). One that is marked as `(replaceable)` can be replaced by an
//! [`Overlay`](super::Overlay). In an outline, the elements of the lists of a message that is
//! marked as `(outlined)` are decoded only if they hold tensors.

/// Defines a struct with its [`Message`](super::Message) implementation for each message in the
/// table.
macro_rules! messages {
    ($(
        $(#[$about:meta])*
        message $Message:ident $(= $full:literal)? $(($($mark:ident),+))? $(enum $enum:ident 0..=$last:literal)? {
            $($table:tt)*
        }
    )*) => {$(
        messages!(@type $(#[$about])* $Message { $($table)* });
        messages!(
            @wire $Message, messages!(@name $Message $($full)?),
            (
                messages!(@mark replaceable $($($mark)+)?),
                messages!(@mark outlined $($($mark)+)?),
                messages!(@mark recursive $($($mark)+)?),
                messages!(@enum $($enum $last)?)
            ),
            { $($table)* }
        );
    )*};

    (@enum) => { None::<(&'static str, i32)> };
    (@enum $enum:ident $last:literal) => { Some((stringify!($enum), $last)) };

    (@mark $wanted:ident) => { false };
    (@mark replaceable replaceable $($more:ident)*) => { true };
    (@mark outlined outlined $($more:ident)*) => { true };
    (@mark recursive recursive $($more:ident)*) => { true };
    (@mark $wanted:ident $mark:ident $($more:ident)*) => { messages!(@mark $wanted $($more)*) };

    (@name $Message:ident) => { stringify!($Message) };
    (@name $Message:ident $full:literal) => { $full };

    // The types: a struct, and the types of its `oneof` and `rare` groups.
    (@type $(#[$about:meta])* $Message:ident {
        $($(#[$doc:meta])* $number:literal $field:ident: $type:ty,)*
        $(
            oneof $oneof:ident: $Oneof:ident {
                $($(#[$doc1:meta])* $number1:literal $name1:ident: $Member1:ident($type1:ty),)*
            }
            $($(#[$doc2:meta])* $number2:literal $field2:ident: $type2:ty,)*
            $(and {
                $($(#[$doc3:meta])* $number3:literal $name3:ident: $Member3:ident($type3:ty),)*
            })?
        )?
    }) => {
        $(#[$about])*
        #[derive(Default)]
        #[non_exhaustive]
        pub struct $Message {
            $($(#[$doc])* pub $field: $type,)*
            $(
                /// Which of the alternatives it is, if any.
                pub $oneof: Option<$Oneof>,
                $($(#[$doc2])* pub $field2: $type2,)*
            )?
            /// Records of fields that are not known here.
            pub unknown: $crate::proto::wire::Unknown,
        }

        impl $crate::proto::wire::RareFields for $Message {}

        messages!(@walked $Message $($field)* $($oneof $($field2)*)? unknown);

        impl std::fmt::Debug for $Message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::proto::wire::show::<Self>(f, |f| {
                    f.debug_struct(stringify!($Message))
                        $(.field($crate::proto::wire::plain(stringify!($field)), &self.$field))*
                        $(
                            .field($crate::proto::wire::plain(stringify!($oneof)), &self.$oneof)
                            $(.field($crate::proto::wire::plain(stringify!($field2)), &self.$field2))*
                        )?
                        .field("unknown", &self.unknown)
                        .finish()
                })
            }
        }

        $(
            #[doc = concat!("The alternatives of [`", stringify!($Message), "`].")]
            #[derive(Debug, Clone, PartialEq)]
            #[non_exhaustive]
            pub enum $Oneof {
                $($(#[$doc1])* $Member1($type1),)*
                $($($(#[$doc3])* $Member3($type3),)*)?
            }
        )?
    };

    (@type $(#[$about:meta])* $Message:ident {
        $($(#[$doc:meta])* $number:literal $field:ident: $type:ty,)*
        rare $rare:ident: $Rare:ident {
            $($(#[$doc1:meta])* $number1:literal $field1:ident: $type1:ty,)*
        }
        $($(#[$doc2:meta])* $number2:literal $field2:ident: $type2:ty,)*
        $(
            and {
                $($(#[$doc3:meta])* $number3:literal $field3:ident: $type3:ty,)*
            }
            $($(#[$doc4:meta])* $number4:literal $field4:ident: $type4:ty,)*
        )*
    }) => {
        $(#[$about])*
        #[derive(Default)]
        #[non_exhaustive]
        pub struct $Message {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$doc2])* pub $field2: $type2,)*
            $($($(#[$doc4])* pub $field4: $type4,)*)*
            #[doc = concat!("The fields of [`", stringify!($Rare), "`].")]
            pub $rare: $crate::proto::wire::Rare<$Rare>,
        }

        messages!(@walked $Message $($field)* $($field2)* $($($field4)*)* $rare);

        #[doc = concat!("The fields of [`", stringify!($Message), "`] that are seldom set, which")]
        /// it lends as its own; the first write to one of them allocates them all.
        #[derive(Debug, Clone, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $Rare {
            $($(#[$doc1])* pub $field1: $type1,)*
            $($($(#[$doc3])* pub $field3: $type3,)*)*
            /// Records of fields that are not known here.
            pub unknown: $crate::proto::wire::Unknown,
        }

        impl $crate::proto::wire::RareFields for $Message {
            #[inline]
            fn rare_size(&self) -> usize {
                if self.$rare.is_set() { size_of::<$Rare>() } else { 0 }
            }
        }

        impl $crate::proto::wire::Empty for $Rare {
            const EMPTY: &'static Self = &Self {
                $($field1: <$type1 as $crate::proto::wire::Field>::UNSET,)*
                $($($field3: <$type3 as $crate::proto::wire::Field>::UNSET,)*)*
                unknown: $crate::proto::wire::Unknown::new(),
            };
        }

        impl std::ops::Deref for $Message {
            type Target = $Rare;

            #[inline]
            fn deref(&self) -> &$Rare {
                &self.$rare
            }
        }

        impl std::ops::DerefMut for $Message {
            fn deref_mut(&mut self) -> &mut $Rare {
                &mut self.$rare
            }
        }

        impl std::fmt::Debug for $Message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Message))
                    $(.field($crate::proto::wire::plain(stringify!($field)), &self.$field))*
                    $(.field($crate::proto::wire::plain(stringify!($field1)), &self.$field1))*
                    $(.field($crate::proto::wire::plain(stringify!($field2)), &self.$field2))*
                    $(
                        $(.field($crate::proto::wire::plain(stringify!($field3)), &self.$field3))*
                        $(.field($crate::proto::wire::plain(stringify!($field4)), &self.$field4))*
                    )*
                    .field("unknown", &self.unknown)
                    .finish()
            }
        }
    };

    // What goes through a whole message, at any depth of a message that may hold itself.
    (@walked $Message:ident $($field:ident)*) => {
        impl Clone for $Message {
            fn clone(&self) -> Self {
                $crate::proto::wire::walk::<Self, _>(|| Self { $($field: self.$field.clone(),)* })
            }
        }

        impl PartialEq for $Message {
            fn eq(&self, other: &Self) -> bool {
                $crate::proto::wire::walk::<Self, _>(|| true $(&& self.$field == other.$field)*)
            }
        }
    };

    // Reading and writing. Here the fields of a `rare` group are treated like all others.
    (@wire $Message:ident, $name:expr, $marks:expr, {
        $($(#[$doc:meta])* $number:literal $field:ident: $type:ty,)*
        rare $rare:ident: $Rare:ident {
            $($(#[$doc1:meta])* $number1:literal $field1:ident: $type1:ty,)*
        }
        $($(#[$doc2:meta])* $number2:literal $field2:ident: $type2:ty,)*
        $(
            and {
                $($(#[$doc3:meta])* $number3:literal $field3:ident: $type3:ty,)*
            }
            $($(#[$doc4:meta])* $number4:literal $field4:ident: $type4:ty,)*
        )*
    }) => {
        messages!(@wire $Message, $name, $marks, {
            $($number $field: $type,)*
            $($number1 $field1: $type1,)*
            $($number2 $field2: $type2,)*
            $($($number3 $field3: $type3,)* $($number4 $field4: $type4,)*)*
        });
    };

    (@wire $Message:ident, $name:expr, $marks:expr, {
        $($(#[$doc:meta])* $number:literal $field:ident: $type:ty,)*
        $(
            oneof $oneof:ident: $Oneof:ident {
                $($(#[$doc1:meta])* $number1:literal $name1:ident: $Member1:ident($type1:ty),)*
            }
            $($(#[$doc2:meta])* $number2:literal $field2:ident: $type2:ty,)*
            $(and {
                $($(#[$doc3:meta])* $number3:literal $name3:ident: $Member3:ident($type3:ty),)*
            })?
        )?
    }) => {
        impl $crate::proto::wire::Message for $Message {
            const NAME: &'static str = $name;
            const REPLACEABLE: bool = $marks.0;
            const OUTLINED: bool = $marks.1;
            const RECURSIVE: bool = $marks.2;
            const FIELDS: &'static [$crate::proto::wire::FieldInfo] = &[
                $($crate::proto::wire::FieldInfo::of::<$type>($number, stringify!($field)).among($marks.3),)*
                $(
                    $($crate::proto::wire::FieldInfo::of::<Option<$type1>>($number1, stringify!($name1))
                        .alternative(),)*
                    $($crate::proto::wire::FieldInfo::of::<$type2>($number2, stringify!($field2))
                        .among($marks.3),)*
                    $($($crate::proto::wire::FieldInfo::of::<Option<$type3>>(
                        $number3,
                        stringify!($name3),
                    )
                    .alternative(),)*)?
                )?
            ];
            const LEAF: bool = !(
                false $(|| <$type as $crate::proto::wire::Field>::NESTED)*
                $(
                    $(|| <$type1 as $crate::proto::wire::Value>::NESTED)*
                    $(|| <$type2 as $crate::proto::wire::Field>::NESTED)*
                    $($(|| <$type3 as $crate::proto::wire::Value>::NESTED)*)?
                )?
            );

            fn merge_record(
                &mut self,
                tag: $crate::proto::wire::Tag,
                reader: &mut $crate::proto::wire::Reader<'_>,
            ) -> $crate::Result<bool> {
                use $crate::proto::wire::Field;
                match tag.number() {
                    $($number if <$type as Field>::accepts(tag.wire()) => {
                        self.$field.merge(tag.wire(), reader)?;
                    })*
                    $(
                        $($number1 if <$type1 as $crate::proto::wire::Value>::WIRE == tag.wire() => {
                            match &mut self.$oneof {
                                Some($Oneof::$Member1(value)) => {
                                    $crate::proto::wire::Value::merge(value, reader)?;
                                }
                                other => {
                                    let value = $crate::proto::wire::Value::read(reader)?;
                                    *other = Some($Oneof::$Member1(value));
                                }
                            }
                        })*
                        $($number2 if <$type2 as Field>::accepts(tag.wire()) => {
                            self.$field2.merge(tag.wire(), reader)?;
                        })*
                        $($($number3 if <$type3 as $crate::proto::wire::Value>::WIRE == tag.wire() => {
                            match &mut self.$oneof {
                                Some($Oneof::$Member3(value)) => {
                                    $crate::proto::wire::Value::merge(value, reader)?;
                                }
                                other => {
                                    let value = $crate::proto::wire::Value::read(reader)?;
                                    *other = Some($Oneof::$Member3(value));
                                }
                            }
                        })*)?
                    )?
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn pass_record(
                tag: $crate::proto::wire::Tag,
                reader: &mut $crate::proto::wire::Reader<'_>,
            ) -> $crate::Result<Option<bool>> {
                use $crate::proto::wire::Field;
                match tag.number() {
                    $($number if <$type as Field>::accepts(tag.wire()) => {
                        <$type as Field>::pass(tag.wire(), reader).map(Some)
                    })*
                    $(
                        $($number1 if <$type1 as $crate::proto::wire::Value>::WIRE == tag.wire() => {
                            <$type1 as $crate::proto::wire::Value>::pass(reader).map(Some)
                        })*
                        $($number2 if <$type2 as Field>::accepts(tag.wire()) => {
                            <$type2 as Field>::pass(tag.wire(), reader).map(Some)
                        })*
                        $($($number3 if <$type3 as $crate::proto::wire::Value>::WIRE == tag.wire() => {
                            <$type3 as $crate::proto::wire::Value>::pass(reader).map(Some)
                        })*)?
                    )?
                    _ => Ok(None),
                }
            }

            fn listed(&self, tag: $crate::proto::wire::Tag) -> Option<usize> {
                use $crate::proto::wire::Field;
                match tag.number() {
                    $($number if <$type as Field>::accepts(tag.wire()) => self.$field.listed(),)*
                    $(
                        $($number2 if <$type2 as Field>::accepts(tag.wire()) => {
                            self.$field2.listed()
                        })*
                    )?
                    _ => None,
                }
            }

            fn within(&self, levels: u32) -> bool {
                use $crate::proto::wire::Field;
                true
                    $(&& self.$field.within(levels))*
                    $(
                        && match &self.$oneof {
                            $(Some($Oneof::$Member1(value)) => {
                                $crate::proto::wire::Value::within(value, levels)
                            })*
                            $($(Some($Oneof::$Member3(value)) => {
                                $crate::proto::wire::Value::within(value, levels)
                            })*)?
                            None => true,
                        }
                        $(&& self.$field2.within(levels))*
                    )?
            }

            fn size_of_fields(&self, sizes: &mut $crate::proto::wire::Sizes<'_>) -> u64 {
                use $crate::proto::wire::Field;
                let mut size = 0;
                $(size += self.$field.size_among($number, &self.unknown, sizes);)*
                $(
                    match &self.$oneof {
                        $(Some($Oneof::$Member1(value)) => {
                            size += $crate::proto::wire::one_size(value, $number1, sizes);
                        })*
                        _ => {}
                    }
                    $(size += self.$field2.size_among($number2, &self.unknown, sizes);)*
                    $(match &self.$oneof {
                        $(Some($Oneof::$Member3(value)) => {
                            size += $crate::proto::wire::one_size(value, $number3, sizes);
                        })*
                        _ => {}
                    })?
                )?
                size + self.unknown.size()
            }

            fn write_fields(
                &self,
                writer: &mut $crate::proto::wire::Writer<'_>,
            ) -> std::io::Result<()> {
                use $crate::proto::wire::Field;
                $(self.$field.write_among($number, &self.unknown, writer)?;)*
                $(
                    match &self.$oneof {
                        $(Some($Oneof::$Member1(value)) => {
                            $crate::proto::wire::write_one(value, $number1, writer)?;
                        })*
                        _ => {}
                    }
                    $(self.$field2.write_among($number2, &self.unknown, writer)?;)*
                    $(match &self.$oneof {
                        $(Some($Oneof::$Member3(value)) => {
                            $crate::proto::wire::write_one(value, $number3, writer)?;
                        })*
                        _ => {}
                    })?
                )?
                self.unknown.write(writer)
            }

            fn strings_of_fields<'m>(&'m self, visit: &mut dyn FnMut(&'m $crate::proto::wire::Str)) {
                use $crate::proto::wire::Field;
                $(self.$field.strings(visit);)*
                $(
                    match &self.$oneof {
                        $(Some($Oneof::$Member1(value)) => {
                            $crate::proto::wire::Value::strings(value, visit);
                        })*
                        $($(Some($Oneof::$Member3(value)) => {
                            $crate::proto::wire::Value::strings(value, visit);
                        })*)?
                        None => {}
                    }
                    $(self.$field2.strings(visit);)*
                )?
            }

            fn unknown_mut(&mut self) -> &mut $crate::proto::wire::Unknown {
                &mut self.unknown
            }
        }

        impl $crate::proto::wire::Value for $Message {
            const KIND: &'static str = <Self as $crate::proto::wire::Message>::NAME;
            const WIRE: $crate::proto::wire::Wire = $crate::proto::wire::Wire::Len;
            const NESTED: bool = true;

            fn read(reader: &mut $crate::proto::wire::Reader<'_>) -> $crate::Result<Self> {
                $crate::proto::wire::nested::read(reader)
            }

            fn size(&self, sizes: &mut $crate::proto::wire::Sizes<'_>) -> u64 {
                $crate::proto::wire::nested::size(self, sizes)
            }

            fn write(&self, writer: &mut $crate::proto::wire::Writer<'_>) -> std::io::Result<()> {
                $crate::proto::wire::nested::write(self, writer)
            }

            fn list_size(
                list: &[Self],
                number: u32,
                sizes: &mut $crate::proto::wire::Sizes<'_>,
            ) -> u64 {
                $crate::proto::wire::nested::list_size(list, number, sizes)
            }

            fn write_list(
                list: &[Self],
                number: u32,
                writer: &mut $crate::proto::wire::Writer<'_>,
            ) -> std::io::Result<()> {
                $crate::proto::wire::nested::write_list(list, number, writer)
            }

            fn merge(&mut self, reader: &mut $crate::proto::wire::Reader<'_>) -> $crate::Result<()> {
                $crate::proto::wire::nested::merge(self, reader)
            }

            fn pass(reader: &mut $crate::proto::wire::Reader<'_>) -> $crate::Result<bool> {
                $crate::proto::wire::nested::pass::<Self>(reader)
            }

            fn strings<'m>(&'m self, visit: &mut dyn FnMut(&'m $crate::proto::wire::Str)) {
                $crate::proto::wire::visit_strings(self, visit);
            }

            fn within(&self, levels: u32) -> bool {
                $crate::proto::wire::nested::within(self, levels)
            }

            fn append(
                list: &mut Vec<Self>,
                reader: &mut $crate::proto::wire::Reader<'_>,
            ) -> $crate::Result<()> {
                $crate::proto::wire::nested::append(list, reader)
            }
        }
    };
}

pub(crate) use messages;
