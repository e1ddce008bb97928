//! An assembler for the eBPF instructions that the program of AF_XDP sockets needs.
//!
//! Encodings are those of RFC 9669, BPF Instruction Set Architecture: a code, a destination and a source
//! register, an offset and an immediate. Jumps name labels, which [`Assembler::finish`] turns into offsets.

/// An instruction as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// The destination in the low four bits, on a big-endian machine in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. R1 to R5 are arguments of functions, which change them; R0 is the result; R6 to R9 keep their
/// values; R10 is the end of the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R10 = 10,
}

/// Bytes of an access to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
}

/// A place in the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Places of labels, once they are known.
    labels: Vec<Option<usize>>,
    /// Places of jumps, with their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Makes a label, whose place [`here`](Self::here) says.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label in front of the next instruction.
    pub(crate) fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Reg, from: Reg) {
        self.push(0xbf, to, from, 0, 0);
    }

    /// `to = value`
    pub(crate) fn set(&mut self, to: Reg, value: i32) {
        self.push(0xb7, to, Reg::R0, 0, value);
    }

    /// `to += value`
    pub(crate) fn add(&mut self, to: Reg, value: i32) {
        self.push(0x07, to, Reg::R0, 0, value);
    }

    /// `to &= value`
    pub(crate) fn and(&mut self, to: Reg, value: i32) {
        self.push(0x57, to, Reg::R0, 0, value);
    }

    /// `to >>= bits`
    pub(crate) fn shift_right(&mut self, to: Reg, bits: i32) {
        self.push(0x77, to, Reg::R0, 0, bits);
    }

    /// Turns the low 32 bits from the byte order of the network into that of this machine.
    pub(crate) fn word_from_network(&mut self, to: Reg) {
        self.push(0xdc, to, Reg::R0, 0, 32);
    }

    /// Loads from memory, with zeros above.
    pub(crate) fn load(&mut self, to: Reg, size: Size, from: Reg, offset: i16) {
        self.push(0x61 | size as u8, to, from, offset, 0);
    }

    /// Stores a register.
    pub(crate) fn store(&mut self, size: Size, to: Reg, offset: i16, from: Reg) {
        self.push(0x63 | size as u8, to, from, offset, 0);
    }

    /// Stores a number.
    pub(crate) fn store_value(&mut self, size: Size, to: Reg, offset: i16, value: i32) {
        self.push(0x62 | size as u8, to, Reg::R0, offset, value);
    }

    /// `to` = the map with this descriptor
    pub(crate) fn map(&mut self, to: Reg, fd: i32) {
        // The source "register" says what the immediate is; a second instruction has its high half.
        self.push(0x18, to, Reg::R1, 0, fd);
        self.push(0, Reg::R0, Reg::R0, 0, 0);
    }

    /// Calls one of the kernel's functions.
    pub(crate) fn call(&mut self, function: i32) {
        self.push(0x85, Reg::R0, Reg::R0, 0, function);
    }

    /// Ends with the verdict in R0.
    pub(crate) fn exit(&mut self) {
        self.push(0x95, Reg::R0, Reg::R0, 0, 0);
    }

    /// Goes to a label.
    pub(crate) fn jump(&mut self, to: Label) {
        self.push_jump(0x05, Reg::R0, Reg::R0, 0, to);
    }

    /// Goes to a label if the low 32 bits of the register have this value.
    pub(crate) fn jump_if(&mut self, register: Reg, value: u32, to: Label) {
        self.push_jump(0x16, register, Reg::R0, value.cast_signed(), to);
    }

    /// Goes to a label if the low 32 bits of the register have another value.
    pub(crate) fn jump_unless(&mut self, register: Reg, value: u32, to: Label) {
        self.push_jump(0x56, register, Reg::R0, value.cast_signed(), to);
    }

    /// Goes to a label if the register is a null pointer.
    pub(crate) fn jump_if_null(&mut self, register: Reg, to: Label) {
        self.push_jump(0x15, register, Reg::R0, 0, to);
    }

    /// Goes to a label if a register is greater than another.
    pub(crate) fn jump_if_above(&mut self, register: Reg, other: Reg, to: Label) {
        self.push_jump(0x2d, register, other, 0, to);
    }

    /// Returns the program.
    ///
    /// # Panics
    /// If a label has no place, or is too far away.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, Label(label)) in self.jumps {
            let to = self.labels[label].expect("every label that is used has a place");
            let distance = to as i64 - at as i64 - 1;
            self.code[at].offset = distance.try_into().expect("the program is short");
        }
        self.code
    }

    fn push_jump(&mut self, code: u8, to: Reg, from: Reg, immediate: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(code, to, from, 0, immediate);
    }

    fn push(&mut self, code: u8, to: Reg, from: Reg, offset: i16, immediate: i32) {
        let (to, from) = (to as u8, from as u8);
        let registers = if cfg!(target_endian = "big") { to << 4 | from } else { from << 4 | to };
        self.code.push(Instruction { code, registers, offset, immediate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_encodings_of_the_standard() {
        let mut program = Assembler::default();
        let end = program.label();
        program.copy(Reg::R6, Reg::R1);
        program.load(Reg::R2, Size::Half, Reg::R6, 12);
        program.jump_unless(Reg::R2, 0x8765_4321, end);
        program.map(Reg::R1, 7);
        program.here(end);
        program.exit();
        let of =
            |code, registers, offset, immediate| Instruction { code, registers, offset, immediate };
        if cfg!(target_endian = "little") {
            let expected = [
                of(0xbf, 0x16, 0, 0),
                of(0x69, 0x62, 12, 0),
                of(0x56, 0x02, 2, 0x8765_4321_u32.cast_signed()),
                of(0x18, 0x11, 0, 7),
                of(0, 0, 0, 0),
                of(0x95, 0, 0, 0),
            ];
            assert_eq!(program.finish(), expected);
        }
    }
}
