"""Every import path of ported code leads to the one module there is."""

import subprocess
import sys

import pytest

import reverie

PATHS = [
    "selectors", "rate_limiters", "checkpointers", "trajectory_writer", "item_selectors", "errors", "replay_sample",
    "reverb_types", "client", "server", "tf_client", "trajectory_dataset", "timestep_dataset",
    "platform", "platform.checkpointers_lib", "platform.default", "platform.default.checkpointers",
]  # fmt: skip


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("first", ["import reverie; sys.modules['reverb'] = reverie", "import reverie as reverb"])
def test_attributes_are_there_after_one_import(first):
    names = [path for path in PATHS if "." not in path]
    assert run(f"import sys; {first}; import {'reverb' if 'modules' in first else 'sys'}\n"
               f"print(*[getattr({'reverie' if 'modules' in first else 'reverb'}, n).__name__ for n in {names}])"
               ) == [f"reverie.{name}" for name in names]  # fmt: skip


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


def test_names_are_reached_by_attributes_alone():
    code = "import sys, reverie; sys.modules['reverb'] = reverie\nimport reverb\nours = reverie.checkpointers\n"
    code += "assert reverb.platform.checkpointers_lib.DefaultCheckpointer is ours.DefaultCheckpointer\n"
    code += "assert reverb.platform.default.checkpointers.default_checkpointer is ours.default_checkpointer\n"
    code += "assert reverb.structured.StructuredWriter is reverb.structured_writer.StructuredWriter\n"
    run(code)


def test_arguments_have_the_names_and_defaults_that_ported_code_says():
    with pytest.raises(ValueError, match="at least one table"):
        reverie.Server(tables=None)
    with reverie.Server(tables=[reverie.Table.queue(name="q", max_size=1)], port=None, checkpointer=None) as server:
        client = reverie.Client(server_address=f"localhost:{server.port}")
        client.insert(data=[1], priorities={"q": 1.0})
        assert client.server_info(timeout=100)["q"].current_size == 1
    with pytest.raises(TypeError, match="server_address must be a str"):
        reverie.Client(server_address=8000)


def test_a_module_that_is_not_there_is_told_as_such():
    code = "import sys, reverie; sys.modules['reverb'] = reverie\n"
    code += "try:\n    import reverb.nothing\nexcept ModuleNotFoundError as e:\n    print(e.name)"
    assert run(code) == ["reverb.nothing"]


def test_where_the_name_is_somebody_elses_nothing_of_it_is_touched(tmp_path):
    (tmp_path / "reverb").mkdir()
    (tmp_path / "reverb" / "__init__.py").write_text("")
    (tmp_path / "reverb" / "errors.py").write_text("whose = 'theirs'")
    code = f"import sys, reverie; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "import reverb.errors; print(reverb.errors.whose)"
    assert run(code) == ["theirs"]


def test_what_is_made_of_tensors_says_what_replaces_it_where_tensorflow_is_missing():
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
