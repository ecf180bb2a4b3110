"""What scripts/reproduce runs: sets of runs, each one command of `pop`. Nothing here measures.

Names in a command that stand for files: {model}, {text}, {calibration}, {bits:TYPE}. docs/results.md says what each set is for.
"""
import dataclasses

CONTEXT, DECODE = 256, 128
WINDOWS = 4  # of every text; a run that is there is continued when this grows
RATIOS = [0.1, 0.2, 0.3, 0.4]

WIDE = (0.386, 0.585)    # with gamma 0.8: as many bytes of the default model as gamma 0.1 reads at 0.2 and 0.4 (0.848, 0.666 of the blocks)
AS_MANY = (0.175, 0.375)  # ratios without candidates that use as many weights as `pop` at 0.2 and 0.4: 0.825 and 0.625

# Scored: the first WINDOWS windows. In-domain calibration: the second half of the file, which no window reaches.
TEXTS = {"wikitext2": "data/wikitext2_test.txt", "code": "build/texts/test_code.txt", "gsm8k": "build/texts/test_gsm8k.txt",
         "man7": "build/texts/test_man7.txt"}
DEVELOPMENT = "build/texts/choose.txt"  # where options are compared; no test text
CALIBRATION = "build/texts/calibrate.txt"
CALIBRATE = ["--length", "256", "--sequences", "128", "--history", "256"]
ALLOCATE = ["--allocate", "1"]  # of teal: minutes per window, so on the development text only; in-domain its sites have one level

SEARCH = ["--length", "256", "--sequences", "64"]  # of tyr: a file for each ratio, ten minutes and more each
SEARCHED = (0.2, 0.4)

PROMPT = ["pop", "fixed", "full", "griffin"]  # decide from the prompt
UNTOLD = ["random", "magnitude"]              # look at no text
COLUMNS = ["pop+", "wina"]                    # input columns of every matrix
CALIBRATED = ["wanda_sp", "flap", "probe", "teal", "cats"]
MATCHED_CALIBRATED = ["wanda_sp", "flap", "probe", "teal"]
MATCHED = ["griffin", "random", "pop+", "wina", "magnitude"]
GAMMAS = [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1]
EQUAL_GAMMAS = [0.1, 0.8, 0.4, 0, 0.2, 1.2]
NORMS = ["1", "2", "max"]
PROMPTS = [1, 4, 16, 64, 256, 1024]
REFRESHES = [(16, 16), (64, 64), (64, 16), (64, 1), (256, 256), (256, 64)]  # every N tokens, from the last M of them
BITS = ["q2_K", "q3_K", "q4_0", "iq4_nl", "q4_K"]
TASKS = {"arc_easy": "data/arc_easy.jsonl", "arc_challenge": "data/arc_challenge_first586.jsonl", "boolq": "data/boolq.jsonl",
         "piqa": "data/piqa.jsonl", "winogrande": "data/winogrande.jsonl", "hellaswag": "data/hellaswag_sample1000.jsonl"}
TASK_ITEMS = 60
TASK_METHODS = ["pop", "pop+", "fixed", "full", "random"]
TASK_CALIBRATED = ["wanda_sp", "flap", "probe"]


@dataclasses.dataclass(frozen=True)
class Run:
    set: str              # which table it belongs to
    text: str             # a name of TEXTS, "development", or of TASKS
    method: str
    ratios: tuple = ()    # of one command; a result each
    options: tuple = ()
    calibration: str = ""  # "", "development", "in-domain", "task"
    context: int = CONTEXT
    decode: int = DECODE
    windows: int = WINDOWS
    bits: str = ""        # a requantised file in place of the model
    kind: str = "kl"      # or "mc"

    def file_ratio(self):
        """The ratio that the calibration file is for, where one serves no other."""
        return self.ratios[0] if self.method == "tyr" else None

    def name(self):
        """Of the row, without the ratio."""
        parts = [self.set, self.text, self.method, self.calibration, self.bits, *self.options]
        return " ".join(part for part in parts if part)

    def file(self):
        return TEXTS.get(self.text) or TASKS.get(self.text) or DEVELOPMENT

    def tokens(self):
        """What the models read, dense and pruned."""
        passes = len(self.ratios or (0,))
        if self.kind == "mc":
            return self.windows * 400 * passes  # about: four choices of 100 tokens
        return self.windows * (self.context + self.decode) * (passes + 1)

    def command(self):
        if self.kind == "mc":
            words = ["eval", "mc", "-f", "{text}", "--mode", "split-1", "--limit", str(self.windows)]
        else:
            words = ["eval", "kl", "-f", "{text}", "--context", str(self.context), "--decode", str(self.decode), "--sequences",
                     str(self.windows)]
        words += ["-m", "{bits:" + self.bits + "}" if self.bits else "{model}"]
        if self.bits:
            words += ["--base", "model={model}"]
        if self.method != "dense":
            words += ["--prune", self.method]
        if self.ratios and self.file_ratio() is None:
            flag = "--ratios" if self.kind == "kl" else "--ratio"
            words += [flag, ",".join(f"{ratio:g}" for ratio in self.ratios)]
        if self.calibration:
            words += ["--calibration", "{calibration}"]
        return [*words, *self.options]


def main_runs():
    """Every method, four ratios, four texts."""
    runs = []
    for text in TEXTS:
        for method in [*PROMPT, *UNTOLD, *COLUMNS]:
            runs.append(Run("main", text, method, tuple(RATIOS)))
        for source in ("in-domain", "development"):
            for method in CALIBRATED:
                runs.append(Run("main", text, method, tuple(RATIOS), calibration=source))
            runs += [Run("main", text, "tyr", (ratio,), calibration=source) for ratio in SEARCHED]
    runs.append(Run("main", "gsm8k", "task-fixed", tuple(RATIOS), calibration="task"))
    return runs


def equal_runs():
    """At the weights that `pop` reads: --match pop; `fixed` and `cats`, which have no such option, at the ratio that uses as many."""
    match, runs = ("--match", "pop"), []
    for text in TEXTS:
        runs.append(Run("equal", text, "pop", WIDE, ("--gamma", "0.8")))
        runs.append(Run("equal", text, "fixed", AS_MANY))
        for source in ("in-domain", "development"):
            for method in MATCHED_CALIBRATED:
                runs.append(Run("equal", text, method, (0.2, 0.4), match, calibration=source))
            runs.append(Run("equal", text, "cats", AS_MANY, calibration=source))
            runs += [Run("equal", text, "tyr", (ratio,), calibration=source) for ratio in AS_MANY]
        for method in MATCHED:
            runs.append(Run("equal", text, method, (0.2, 0.4), match))
    runs.append(Run("equal", "gsm8k", "task-fixed", (0.2, 0.4), match, calibration="task"))
    return runs


def gamma_runs():
    """At the weights that gamma 0.1 uses at 0.2 and 0.4, then at these ratios. A channel that is a candidate and not chosen costs two
    thirds of one that is, so the share used is 1 - (r - gamma / 4) where the FFN is three quarters of a block, as in the default model."""
    runs = []
    for gamma in EQUAL_GAMMAS:
        ratios = tuple(round(ratio + gamma / 4, 6) for ratio in AS_MANY)
        runs.append(Run("gamma-equal", "development", "pop", ratios, ("--gamma", f"{gamma:g}")))
    runs += [Run("gamma", "development", "pop", (0.2, 0.4), ("--gamma", f"{gamma:g}")) for gamma in GAMMAS]
    return [*runs, Run("gamma", "development", "full", (0.2, 0.4))]


def metric_runs():
    return [Run("metric", "development", "pop", (0.2, 0.4), ("--metric", metric, "--norm", norm))
            for metric in ("down", "gate-up") for norm in NORMS]


def prompt_runs():
    """From how many prompt tokens on does a partition, or a threshold, hold?"""
    return [Run("prompt", "development", method, (0.2,), context=length) for length in PROMPTS for method in ("pop", "pop+")]


def long_runs():
    """By decode position, and how far greedy answers stay equal."""
    return [Run("long", "development", method, (0.2, 0.4), ("--generate", "64"), decode=512, windows=max(2, WINDOWS // 2))
            for method in ("pop", "pop+", "fixed", "full", "random")]


def refresh_runs():
    """Long answers: how often to decide anew, and from how many of the tokens in between."""
    runs = []
    for method in ("pop", "fixed", "pop+"):
        for options in [(), *((("--refresh", str(every), "--refresh-last", str(last))) for every, last in REFRESHES)]:
            if method == "pop" or options in ((), ("--refresh", "64", "--refresh-last", "64")):
                runs.append(Run("refresh", "development", method, (0.2, 0.4), options, decode=512))
    return runs


def bits_runs():
    runs = []
    for kind in BITS:
        runs.append(Run("bits", "wikitext2", "dense", bits=kind))
        for method in ("pop", "pop+"):
            runs.append(Run("bits", "wikitext2", method, (0.2,), bits=kind))
    return runs


def task_runs():
    runs = []
    for task in TASKS:
        runs.append(Run("tasks", task, "dense", kind="mc", windows=TASK_ITEMS))
        for ratio in (0.2, 0.4):
            for method in TASK_METHODS:
                runs.append(Run("tasks", task, method, (ratio,), kind="mc", windows=TASK_ITEMS))
            for method in TASK_CALIBRATED:
                runs.append(Run("tasks", task, method, (ratio,), calibration="development", kind="mc", windows=TASK_ITEMS))
    return runs


SETS = {"main": main_runs, "equal": equal_runs, "gamma": gamma_runs, "metric": metric_runs, "prompt": prompt_runs, "bits": bits_runs,
        "tasks": task_runs, "long": long_runs, "refresh": refresh_runs}


def quick(runs):
    """A part of the same runs, whose results are compared with the committed ones: one text, the methods that need no calibration."""
    return [run for run in runs if run.set == "main" and run.text == "wikitext2" and not run.calibration]
