import subprocess
import sys


def test_a_replica_loads_nothing_but_the_standard_library_numpy_and_a_small_part_of_the_platform() -> None:
    script = (
        "import sys, workers.process.main, workers.backends.python\n"
        "print(*sorted({name.partition('.')[0] for name, module in sys.modules.items() if getattr(module, '__file__', None)}))\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('gateway', 'registry') or name.startswith('workers.node')))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert 0 == done.returncode, done.stderr
    tops, foreign = done.stdout.splitlines()

    assert {"functions", "workers", "numpy"} == set(tops.split()) - set(sys.stdlib_module_names) - {"__main__"}
    assert "" == foreign
