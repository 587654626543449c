"""What source code may not do with files, found by reading it."""

import ast

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
BUILTINS = {"eval", "exec", "__import__"}
EXTRACTORS = {"extractall", "extract", "unpack_archive"}
# Programs, whose readers unpickle or run what they find.
CODE_LOADERS = {
    "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter",
    "torch.export.load",
    "torch._inductor.aoti_load_package",
}
NETWORK = {"socket", "urllib", "requests", "http", "httpx", "aiohttp", "ftplib", "smtplib", "xmlrpc"}


def dotted(node) -> str:
    """``a.b.c`` of an expression; empty if it is no plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else f"?.{node.attr}"
    return ""


def full_names(tree) -> dict[str, str]:
    """What names stand for, after imports."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            known.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return known


def option(call, name):
    """The constant given to a keyword, ``None`` if it is absent, ``...`` if it is no constant."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
        if keyword.arg is None:
            return ...
    return None


def unsafe_calls(source: str) -> list[str]:
    """Calls that could execute what a file says, or write where it says."""
    tree = ast.parse(source)
    known, found = full_names(tree), []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        head, _, rest = dotted(node.func).partition(".")
        name = f"{known.get(head, head)}.{rest}".rstrip(".")
        package, _, last = name.rpartition(".")
        reason = None
        if name in BUILTINS:
            reason = f"{name}()"
        elif package.partition(".")[0] in UNPICKLERS and last in {"load", "loads", "Unpickler", "open"}:
            reason = name
        elif name == "torch.load" and option(node, "weights_only") is not True:
            reason = "torch.load without weights_only=True"
        elif name in CODE_LOADERS:
            reason = name
        elif name in {"numpy.load", "numpy.lib.npyio.load"} and option(node, "allow_pickle") not in (None, False):
            reason = "numpy.load with allow_pickle"
        elif package == "yaml" and last.endswith("load") and not last.startswith("safe"):
            reason = name
        elif package and last in EXTRACTORS:
            reason = f"{last}() of an archive"
        elif name in {"os.system", "os.popen"} or (
            package == "subprocess" and option(node, "shell") not in (None, False)
        ):
            reason = f"{name} through a shell"
        if reason is not None:
            found.append(f"line {node.lineno}: {reason}")
    return found


def network_imports(source: str) -> list[str]:
    """Imports of what can open a connection."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [name for name in names if name.partition(".")[0] in NETWORK | {"huggingface_hub", "wandb"}]
    return found
