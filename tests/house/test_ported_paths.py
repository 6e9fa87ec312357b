"""Every import path of ported code leads to the one module there is."""

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import reverie
from reverie.ported.names import ATTRIBUTES, MODULES

#: Modules of dm-reverb that are a file of the same name here, and those of the table.
PATHS = ["selectors", "rate_limiters", "checkpointers", "errors", "client", "server", "structured", *MODULES]


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_table_has_the_paths_that_code_for_dm_reverb_imports():
    paths = (
        "item_selectors pattern_dataset platform platform.checkpointers_lib platform.default "
        "platform.default.checkpointers replay_sample reverb_types structured_writer tf_client timestep_dataset "
        "trajectory_dataset trajectory_writer"
    )
    assert sorted(MODULES) == paths.split()
    assert sorted(ATTRIBUTES) == ["TFClient", "TimestepDataset", "TrajectoryDataset"]


@pytest.mark.long
@pytest.mark.parametrize("path", MODULES)
def test_every_module_of_the_table_is_imported_by_its_path_and_is_the_module_that_the_table_names(path):
    code = f"import sys, importlib, reverie.{path} as module\n"
    code += f"assert module is sys.modules['reverie.{path}'] is importlib.import_module({MODULES[path]!r})\n"
    code += f"import reverie\nassert reverie.{path} is module and '{path.split('.')[0]}' in dir(reverie)\n"
    code += "print(*module.__all__) if hasattr(module, '__all__') else print()\n"
    code += "assert all(hasattr(module, name) for name in module.__all__)\n"
    run(code)


@pytest.mark.long
@pytest.mark.parametrize(
    "first", ["import reverie; sys.modules['reverb'] = reverie; import reverb", "import reverie as reverb"]
)
def test_attributes_are_there_after_one_import(first):
    code = f"import sys, importlib; {first}\nfrom reverie.ported.names import ATTRIBUTES, MODULES\n"
    code += "for path, ours in MODULES.items():\n"
    code += "    if '.' not in path: assert getattr(reverb, path) is importlib.import_module(ours), path\n"
    code += "for name, ours in ATTRIBUTES.items():\n"
    code += "    assert getattr(reverb, name) is getattr(importlib.import_module(ours), name), name\n"
    run(code)


@pytest.mark.long
def test_importing_the_package_loads_nothing_that_only_ported_code_names():
    loaded = run("import sys, reverie; print(*(name for name in sys.modules if name.startswith('reverie.')))")
    targets = {*MODULES.values(), *ATTRIBUTES.values()}
    assert {name for name in targets if ".ported." in name} & set(loaded) == set()
    assert {f"reverie.{path}" for path in MODULES} & set(loaded) == set()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("trajectory_dataset", "TrajectoryDataset"),
        ("timestep_dataset", "TimestepDataset"),
        ("tf_client", "TFClient"),
        ("item_selectors", "Fifo"),
        ("replay_sample", "ReplaySample"),
        ("platform.default.checkpointers", "DefaultCheckpointer"),
    ],
)
def test_a_pickle_by_a_name_of_ported_code_gives_the_class_that_there_is(path, name):
    by_name = pickle.loads(f"creverie.{path}\n{name}\n.".encode())
    assert by_name is getattr(importlib.import_module(f"reverie.{path}"), name)
    assert pickle.loads(pickle.dumps(by_name)) is by_name


def test_a_type_checker_sees_every_name_of_the_table():
    # The names are loaded when they are first used, so what a checker reads is a list of its own.
    tree = ast.parse(Path(reverie.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            seen[alias.asname or alias.name] = (node.module, alias.name)
    tops = {path: target.rsplit(".", 1) for path, target in MODULES.items() if "." not in path}
    assert seen == {
        **{path: (package, name) for path, (package, name) in tops.items()},
        **{name: (module, name) for name, module in ATTRIBUTES.items()},
        "TableInfo": ("reverie.info", "TableInfo"),
        "info": ("reverie", "info"),
    }


@pytest.mark.long
def test_a_module_below_the_other_name_is_the_very_module():
    code = "import sys, importlib, reverie; sys.modules['reverb'] = reverie\n"
    code += f"for path in {PATHS}:\n"
    code += "    ours = importlib.import_module('reverb.' + path)\n"
    code += "    assert ours is importlib.import_module('reverie.' + path), path\n"
    code += "from reverb.platform import checkpointers_lib\n"
    code += "from reverb.platform.checkpointers_lib import CheckpointerBase\n"
    code += "from reverb import errors\nimport reverb.errors as other\nassert errors is other is reverie.errors\n"
    code += "assert errors.__spec__.name == 'reverie.errors' == errors.__name__\n"
    code += "import reverb\nassert reverb.errors is errors and reverb.client.Writer is reverie.Writer\n"
    code += "assert reverb.server.Table is reverie.Table and reverb.server.Server is reverie.Server\n"
    run(code)


@pytest.mark.long
def test_names_are_reached_by_attributes_alone():
    code = "import sys, reverie; sys.modules['reverb'] = reverie\nimport reverb\nours = reverie.checkpointers\n"
    code += "assert reverb.platform.checkpointers_lib.DefaultCheckpointer is ours.DefaultCheckpointer\n"
    code += "assert reverb.platform.default.checkpointers.default_checkpointer is ours.default_checkpointer\n"
    code += "assert reverb.structured.StructuredWriter is reverb.structured_writer.StructuredWriter\n"
    run(code)


def test_arguments_have_the_names_and_defaults_of_ported_code():
    with pytest.raises(ValueError, match="at least one table"):
        reverie.Server(tables=None)
    with reverie.Server(tables=[reverie.Table.queue(name="q", max_size=1)], port=None, checkpointer=None) as server:
        client = reverie.Client(server_address=f"localhost:{server.port}")
        client.insert(data=[1], priorities={"q": 1.0})
        assert client.server_info(timeout=100)["q"].current_size == 1
    with pytest.raises(TypeError, match="server_address must be a str"):
        reverie.Client(server_address=8000)


@pytest.mark.long
@pytest.mark.parametrize("path", ["nothing", "nothing.below", "platform.nothing", "item_selectors.nothing"])
def test_a_module_that_is_missing_is_reported_as_everywhere_in_python(path):
    for top in ("reverie", "reverb"):
        code = "import sys, reverie; sys.modules['reverb'] = reverie\n"
        code += f"try:\n    import {top}.{path}\nexcept ModuleNotFoundError as e:\n    print(e.name)"
        missing = path.partition(".")[0] if path.startswith("nothing") else path
        assert run(code) == [f"{top}.{missing}"]


def test_a_name_that_is_missing_is_reported_as_everywhere_in_python():
    with pytest.raises(AttributeError, match="module 'reverie' has no attribute 'nothing'"):
        _ = reverie.nothing
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'reverie'"):
        from reverie import nothing  # noqa: F401
    assert not hasattr(reverie, "checkpointers_lib")


def test_another_package_of_the_name_is_left_alone(tmp_path):
    (tmp_path / "reverb").mkdir()
    (tmp_path / "reverb" / "__init__.py").write_text("")
    (tmp_path / "reverb" / "errors.py").write_text("whose = 'theirs'")
    code = f"import sys, reverie; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "import reverb.errors; print(reverb.errors.whose)"
    assert run(code) == ["theirs"]


@pytest.mark.long
def test_without_tensorflow_calls_with_tensors_name_their_replacement():
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import reverie\n"
        "table = reverie.Table('t', reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1)\n"
        "client = reverie.TFClient(reverie.Server([table], listen=False).client())\n"
        "assert isinstance(client, reverie.TFClient)\n"
        "for call in (lambda: client.sample('t', [1]), lambda: client.insert([1], 1, 1),\n"
        "             lambda: client.update_priorities('t', 1, 1), reverie.SampleInfo.tf_dtypes,\n"
        "             reverie.SampleInfo.tf_shapes):\n"
        "    try: call()\n"
        "    except ImportError as error:\n"
        "        assert 'without it use' in str(error) and error.name == 'tensorflow', error\n"
        "    else: raise AssertionError(call)\n"
    )
    run(code)


def test_the_names_that_code_for_dm_reverb_uses_are_at_the_top():
    names = (
        "Client Writer Server Table TFClient TrajectoryWriter TrajectoryColumn TrajectoryDataset TimestepDataset "
        "ReplaySample SampleInfo ReverbError DeadlineExceededError"
    )
    assert [name for name in names.split() if not hasattr(reverie, name)] == []
    assert reverie.ReverbError is reverie.ReplayError
    assert reverie.SampleInfo.zeros() == (0, 0.0, 0, 0.0, 0)
