"""Prints structures of amdsmi as C has them, as the binding declares them."""

import ctypes

from amdsmi import amdsmi_wrapper

NAMES = "enumeration_info asic_info clk_info gpu_metrics vram_usage power_cap_info error_count proc_info"


def declared(kind, name):
    """The declaration of a variable of this type."""
    if issubclass(kind, ctypes.Array):
        return f"{declared(kind._type_, f'{name}[{kind._length_}]')}"
    if issubclass(kind, ctypes.Structure):
        fields = " ".join(f"{declared(of, field)};" for field, of in kind._fields_)
        return f"struct __attribute__((packed)) {{ {fields} }} {name}"
    return f"char {name}" if kind is ctypes.c_char else f"uint{8 * ctypes.sizeof(kind)}_t {name}"


print("#include <stdint.h>")
for name in NAMES.split():
    print(f"typedef {declared(getattr(amdsmi_wrapper, f'amdsmi_{name}_t'), f'amdsmi_{name}_t')};")
