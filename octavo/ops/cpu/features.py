"""Features: what the CPU that kernels are compiled for can do, asked of LLVM itself before anything is compiled for it.

An intrinsic that the CPU lacks ends the process and cannot be caught, so every implementation looks here first. NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES choose another CPU than the host's, which is how the narrower paths are tested on a wide machine.
"""

import functools
import platform

import llvmlite.binding as llvm
from numba.core import config as numba_config

LANES = {"avx512bf16": 16, "avx512": 16, "avx2": 8, "plain": 4}  # float32 numbers in one register

# what is emitted for this text tells the level; `{0}` is one function a line
_FUSED = """
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define <8 x float> @f(<8 x float> %a, <8 x float> %b, <8 x float> %c) {
  %d = call <8 x float> @llvm.fma.v8f32(<8 x float> %a, <8 x float> %b, <8 x float> %c)
  ret <8 x float> %d
}
"""
_INTEGER_256 = "define <8 x i32> @f(<8 x i32> %a, <8 x i32> %b) {\n  %c = add <8 x i32> %a, %b\n  ret <8 x i32> %c\n}\n"
_INTEGER_512 = "define <32 x i16> @f(<32 x i16> %a, <32 x i16> %b) {\n  %c = add <32 x i16> %a, %b\n  ret <32 x i16> %c\n}\n"
_BYTES = """
declare i32 @llvm.vector.reduce.add.v64i32(<64 x i32>)
define i32 @f(ptr %a, ptr %b) {
  %x = load <64 x i8>, ptr %a
  %y = load <64 x i8>, ptr %b
  %u = zext <64 x i8> %x to <64 x i32>
  %v = sext <64 x i8> %y to <64 x i32>
  %m = mul <64 x i32> %u, %v
  %r = call i32 @llvm.vector.reduce.add.v64i32(<64 x i32> %m)
  ret i32 %r
}
"""
_LOOK_UP = f"""
define <64 x i8> @f(<64 x i8> %a, <64 x i8> %b) {{
  %c = shufflevector <64 x i8> %a, <64 x i8> %b, <64 x i32> <{", ".join(f"i32 {125 * n % 128}" for n in range(64))}>
  ret <64 x i8> %c
}}
"""
_BFLOAT = "define <16 x bfloat> @f(<16 x float> %a) {\n  %b = fptrunc <16 x float> %a to <16 x bfloat>\n  ret <16 x bfloat> %b\n}\n"


@functools.cache
def target() -> tuple[str, str]:
    """(name, features) of the CPU that numba compiles for, as LLVM takes them."""
    if numba_config.CPU_NAME is not None:
        if numba_config.CPU_FEATURES is None:
            numba_config.CPU_FEATURES = ""  # else numba adds the host's features to the chosen CPU's
        return str(numba_config.CPU_NAME), str(numba_config.CPU_FEATURES)
    features = numba_config.CPU_FEATURES
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten() if features is None else str(features)


def _emits(assembly: str, *words: str) -> bool:
    """Whether the machine code for `assembly` has each of the words."""
    name, features = target()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=name, features=features, opt=2)
    text = machine.emit_assembly(llvm.parse_assembly(assembly))
    return all(word in text for word in words)


@functools.cache
def level() -> str:
    """The widest level that the CPU has: "avx512bf16", "avx512", "avx2" or "plain" (any CPU, four lanes, no fused multiply-add)."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "plain"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if not (_emits(_FUSED, "vfmadd", "ymm") and _emits(_INTEGER_256, "vpadd", "ymm")):
        return "plain"
    if not _emits(_INTEGER_512, "zmm"):
        return "avx2"
    return "avx512bf16" if _emits(_BFLOAT, "vcvtneps2bf16") else "avx512"


@functools.cache
def multiplies_bytes() -> bool:
    """Whether one instruction multiplies 64 pairs of bytes and adds them up by fours (AVX512-VNNI), at one of the avx512 levels."""
    return level().startswith("avx512") and _emits(_BYTES, "vpdpbusd", "zmm")


@functools.cache
def looks_up_bytes() -> bool:
    """Whether one instruction looks 64 bytes up in 128 (AVX512-VBMI), at one of the avx512 levels."""
    return level().startswith("avx512") and _emits(_LOOK_UP, "vperm", "2b\t")


def lanes() -> int:
    """float32 numbers in one vector register at this level."""
    return LANES[level()]
