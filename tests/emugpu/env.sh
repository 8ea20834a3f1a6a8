# env.sh — to be sourced by bash: makes programs started from this shell use the emulated GPU.
#     . OUT/env.sh          from the folder that build.sh filled
#     . tests/emugpu/env.sh OUT
# For mpirun, pass on: -x LD_LIBRARY_PATH -x PYTHONPATH -x CUPY_COMPILE_WITH_PTX and each EMUGPU_… that is set.
emugpu_out=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# An argument counts only where this copy is not the one in OUT: a script's own $1 may be anything.
if [ ! -e "$emugpu_out/lib/libcuda.so.1" ] && [ -e "${1:-}/lib/libcuda.so.1" ]; then
    emugpu_out=$(cd "$1" && pwd)
fi
if [ -e "$emugpu_out/lib/libcuda.so.1" ]; then
    export LD_LIBRARY_PATH="$emugpu_out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export PYTHONPATH="$emugpu_out/python${PYTHONPATH:+:$PYTHONPATH}"
    export CUPY_COMPILE_WITH_PTX=1
    unset emugpu_out
else
    echo "env.sh: no emulated GPU in $emugpu_out (build.sh VENV OUT makes one)" >&2
    unset emugpu_out
    false
fi
