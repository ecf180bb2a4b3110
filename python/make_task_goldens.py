#!/usr/bin/env python3
"""Makes tests/goldens/tasks.json: what lm-evaluation-harness itself asks and how it scores, on hand-made items.

The items are python/task_fixtures/*.jsonl, written for this. The harness reads them in place of its data sets and says the
requests it would send (context, continuation, stops) and, for hand-made answers, what its filters extract and what its
metrics give. scripts/convert-data and `pop eval gen` are compared with that. Needs lm_eval, evaluate and transformers (for
its SQuAD metrics); neither models nor a network. Made with lm_eval 0.4.13.

Usage: python/make_task_goldens.py
"""
import importlib.metadata
import json
import os
import sys
import tempfile
import types

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIXTURES = os.path.join(ROOT, "python", "task_fixtures")
os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1")

# The harness's own file of each task, below its tasks/ folder, and the split it scores.
TASKS = {
    "arc_easy": ("arc/arc_easy.yaml", "test"),
    "blimp": ("blimp/adjunct_island.yaml", "train"),
    "boolq": ("super_glue/boolq/default.yaml", "validation"),
    "coqa": ("coqa/default.yaml", "validation"),
    "gsm8k": ("gsm8k/gsm8k.yaml", "test"),
    "hellaswag": ("hellaswag/hellaswag.yaml", "validation"),
    "humaneval": ("humaneval/humaneval.yaml", "test"),
    "lambada_openai": ("lambada/lambada_openai.yaml", "test"),
    "mbpp": ("mbpp/mbpp.yaml", "test"),
    "nq_open": ("nq_open/nq_open.yaml", "validation"),
    "openbookqa": ("openbookqa/openbookqa.yaml", "test"),
    "piqa": ("piqa/piqa.yaml", "validation"),
    "winogrande": ("winogrande/default.yaml", "validation"),
}
# Answers to the item of that place, as a model might give them.
ANSWERS = {
    "gsm8k": [
        [0, " Two cost 2 * 1200 = $<<2*1200=2400>>2400.\n#### 2,400"], [0, " #### 2400"], [0, " #### $2400"],
        [0, " The answer is $2,400."], [0, " So it is 2400.00"], [0, "####2400"], [0, " #### 1200\n#### 2400"],
        [0, " 2400, which is 100 more than 2300"], [0, " no number"], [0, ""], [0, " #### 2400."], [0, " a 2.400 b"],
        [0, " $ and ,. then 2400"], [0, " costs 2400 , ."], [0, "#### 2,400,"], [0, " ２４００"],
        [1, " 3 - 5 = -2\n#### -2"], [1, " it is -2."], [1, " it is 2 below"], [1, " - 2"], [1, " 5-2"], [1, " #### --2"],
    ],
    "nq_open": [
        [0, " Ada Löv"], [0, " ada löv\n"], [0, " A. LÖV"], [0, "\tThe Ada Löv  "], [0, " Ada  Löv"], [0, " Ada Lov"], [0, ""],
        [0, "\u00a0Ada Löv\u2003"], [0, " an Ada Löv!"], [0, " Thea Ada Löv"], [0, " “Ada Löv”"],
        [1, " great tower"], [1, " the great tower"], [1, " The Great Tower"], [1, " a great the tower"], [1, " great-tower"],
        [1, " [Great Tower]"], [1, " greatthe tower"], [1, " éthe great tower"], [1, " _the great tower"],
    ],
    "coqa": [
        [0, " an apple"], [0, " Apple"], [0, " the apple at the gate"], [0, " a red apple\n\nQ: who"], [0, "\n apple"], [0, ""],
        [0, " An apple, at the gate!"], [0, " goats"], [0, " apple apple"], [0, "the"], [0, " an\u00a0apple"], [0, " ÄPFEL apple"],
        [1, " no"], [1, " No."], [1, " it doesn't"], [1, " it does not"], [1, " no it does"], [1, " yes"],
    ],
}


def superglue(folder):
    """BoolQ as SuperGLUE has it: the title is part of the passage, the answer a number."""
    path = os.path.join(folder, "boolq.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for row in rows("boolq"):
            file.write(json.dumps({"question": row["question"], "passage": f"{row['title']} -- {row['passage']}",
                                   "label": int(row["answer"])}) + "\n")
    return path


def overlay(folder, task, library):
    own, split = TASKS[task]
    name = {"blimp": "blimp_adjunct_island"}.get(task, task)
    files = {split: os.path.join(FIXTURES, f"{task}.jsonl")}
    if task == "boolq":
        files[split] = superglue(folder)
    splits = {"training": None, "validation": None, "test": None, "test" if split == "test" else "validation": split}
    lines = [f"include: {os.path.join(library, 'tasks', own)}", f"task: {name}", "dataset_path: json", "dataset_name: null"]
    if task == "gsm8k":  # drawn at random there; the first five, in order, are ours
        splits["training"] = "train"
        files["train"] = os.path.join(FIXTURES, "gsm8k_shots.jsonl")
        lines.append("fewshot_config: {sampler: first_n}")
    if task == "mbpp":
        shots = [dict(row, is_fewshot=True) for row in rows("mbpp_shots") if row["task_id"] in (2, 3, 4)]
        lines.append(f"fewshot_config: {json.dumps({'sampler': 'first_n', 'samples': shots})}")
    lines += [f"{part}_split: {value or 'null'}" for part, value in splits.items()]
    lines.append(f"dataset_kwargs: {json.dumps({'data_files': files})}")
    with open(os.path.join(folder, f"{task}.yaml"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return name


def stub_downloads():
    """The code metric comes from the network; the requests do not need it."""
    import evaluate

    evaluate.load = lambda *_: types.SimpleNamespace(compute=lambda **_: ({"pass@1": 0.0}, {}))


def rows(name):
    with open(os.path.join(FIXTURES, f"{name}.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def scores(task, place, answer):
    """What each filter extracts from the answer, and what the metrics make of it."""
    document = list(task.eval_docs)[place]
    instance = task.construct_requests(doc=document, ctx="", metadata=(None, place, 1))
    instance.resps = [answer]
    out = []
    for chain in task._filters:
        chain.apply([instance])
        filtered = instance.filtered_resps[chain.name]
        metrics = {name: float(value) for name, value in task.process_results(document, [filtered]).items()}
        out.append({"filter": chain.name, "filtered": filtered, "metrics": metrics})
    return out


def main():
    import lm_eval
    from lm_eval.tasks import TaskManager

    library = os.path.dirname(lm_eval.__file__)
    stub_downloads()
    golden = {"lm_eval": importlib.metadata.version("lm_eval"), "requests": {}, "answers": {}}
    with tempfile.TemporaryDirectory() as folder:
        names = {task: overlay(folder, task, library) for task in TASKS}
        manager = TaskManager(include_path=folder)
        for task, name in names.items():
            made = manager.load([name])["tasks"][name]
            made.set_fewshot_seed(1234)
            made.build_all_requests(rank=0, world_size=1)
            golden["requests"][task] = [list(one.args) for one in made.instances]
            targets = [made.doc_to_target(document) for document in made.eval_docs]
            golden["answers"][task] = [{"item": place, "targets": targets[place] if isinstance(targets[place], list) else [targets[place]],
                                        "answer": answer, "scores": scores(made, place, answer)}
                                       for place, answer in ANSWERS.get(task, [])]
    golden["answers"] = {task: cases for task, cases in golden["answers"].items() if cases}
    with open(os.path.join(ROOT, "tests", "goldens", "tasks.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(sum(map(len, golden["requests"].values())), "requests,", sum(map(len, golden["answers"].values())), "answers",
          file=sys.stderr)


if __name__ == "__main__":
    main()
