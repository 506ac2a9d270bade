//! Where each tensor of a program lies in M: from the steps between which it is needed to its offset.
//!
//! Nothing here knows operators or reads tensors: lengths in bytes and step numbers go in, offsets come out.
