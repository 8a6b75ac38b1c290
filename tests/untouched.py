"""Write `data/published/untouched.csv`: how well the untouched encoders solve STS-B by
a cosine.

    python tests/untouched.py

The mean vector of each text is taken over its real tokens, and a pair's score is the
cosine of its two vectors. Nothing is trained. The data and the checkpoints have to be
there."""

import csv

import numpy as np
import torch
import transformers
from scipy import stats

from lib import data
from lib.core import paths
from lib.papers import grids


def vectors(folder, texts: list[str]) -> np.ndarray:
    """Return the mean vectors [N, H] of some texts."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    found = []
    with torch.no_grad():
        for start in range(0, len(texts), 64):
            batch = tokenizer(
                texts[start : start + 64],
                padding=True,
                truncation=True,
                max_length=128,
                return_tensors="pt",
            )
            states = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            found.append(((states * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)


def main() -> None:
    lines = []
    for profile in ("mini", "base"):
        name = grids.pretrained_encoder_spec(profile).args["name"]
        rows = data.load(grids.make_profile_data_descriptor("mini", "STS-B"))
        for split in ("dev", "unseen"):
            part = rows[split]
            a, b = (
                vectors(data.require_checkpoint_folder(name), texts)
                for texts in (part.a, part.b)
            )
            cosine = (
                (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            )
            spearman = 100 * stats.spearmanr(cosine, part.y).statistic
            pearson = 100 * stats.pearsonr(cosine, part.y).statistic
            lines.append(
                (
                    profile,
                    name,
                    "STS-B",
                    split,
                    len(part),
                    f"{spearman:.1f}",
                    f"{pearson:.1f}",
                )
            )
    with (paths.PUBLISHED / "untouched.csv").open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("profile checkpoint task split rows spearman pearson".split())
        writer.writerows(lines)


if __name__ == "__main__":
    main()
