//! Debian's Ruby: `system` starts programs by `vfork`, except for root, and the interpreter has a handler of
//! SIGSEGV, by which it notices that its stack has overflowed.

use super::program::Program;

/// The script `$s`: it opens a device, registers memory, starts a program as another user, and recurses
/// without end twice, the second time in the interpreter's own functions.
const SCRIPT: &str = "s='require \"fiddle\"\n\
     lib = Fiddle.dlopen(\"libibverbs.so.1\"); p = Fiddle::TYPE_VOIDP\n\
     call = ->(name, *given) { Fiddle::Function.new(lib[name], [p] * given.size, p).call(*given) }\n\
     device = Fiddle::Pointer.new(call.(\"ibv_get_device_list\", nil).to_i)[0, 8].unpack1(\"Q\")\n\
     domain = call.(\"ibv_alloc_pd\", call.(\"ibv_open_device\", device))\n\
     region = call.(\"ibv_reg_mr\", domain, memory = Fiddle.malloc(4096), 4096, 1)\n\
     puts \"registered\" if region.to_i != 0\n\
     Process::UID.change_privilege(65_534) rescue puts(\"root stays\")\n\
     system(\"true\") && puts(\"started\")\n\
     def deep(x) = [1].each { deep(x) }\n\
     begin; deep(1); rescue SystemStackError; puts \"overflow rescued\"; end\n\
     list = []; 200_000.times { list = [list] }\n\
     begin; list.flatten; list.hash; list.inspect; rescue SystemStackError; puts \"rescued again\"; end';";

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[Program::alone(
    "ruby -e \"$s\"",
    &["registered", "started", "overflow rescued", "rescued again"],
)
.behind(SCRIPT)
.quick()];
