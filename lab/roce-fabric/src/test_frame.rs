//! A frame for tests.

use crate::{FabricFrame, SwitchFrame};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestFrame {
    pub(crate) to: usize,
    pub(crate) flow: u64,
    pub(crate) number: u64,
    pub(crate) class: usize,
    pub(crate) len: u64,
    pub(crate) ecn_capable: bool,
    pub(crate) ce: bool,
}

impl TestFrame {
    pub(crate) fn new(class: usize, len: u64) -> Self {
        Self { to: 0, flow: 0, number: 0, class, len, ecn_capable: false, ce: false }
    }
}

impl SwitchFrame for TestFrame {
    fn len(&self) -> u64 {
        self.len
    }

    fn class(&self) -> usize {
        self.class
    }

    fn is_ecn_capable(&self) -> bool {
        self.ecn_capable
    }

    fn mark_ce(&mut self) {
        self.ce = true;
    }
}

impl FabricFrame for TestFrame {
    fn destination(&self) -> usize {
        self.to
    }

    fn flow_hash(&self) -> u64 {
        self.flow
    }
}
