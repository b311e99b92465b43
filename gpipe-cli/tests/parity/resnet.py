"""Opens a ResNet that gpipe saved in torchvision, and compares the logits of its images.

    python resnet.py NAME model.safetensors logits.safetensors

The last file is what the example `logits` of gpipe-train writes. Prints one JSON line: the number of images, and the
largest difference as a share of the largest logit.
"""

import json
import sys

import torch
import torchvision
from safetensors.torch import load_file

name, weights, written = sys.argv[1:]
weights, written = load_file(weights), load_file(written)
model = getattr(torchvision.models, name)(num_classes=weights["fc.bias"].shape[0])
missing = model.load_state_dict(weights, strict=False)
# What torchvision counts besides the values is not saved.
assert not missing.unexpected_keys and all(key.endswith("num_batches_tracked") for key in missing.missing_keys), missing
model.eval()
difference, largest, images = 0.0, 0.0, 0
for key, ours in written.items():
    if key.startswith("logits."):
        x = written[key.replace("logits", "images")]
        with torch.no_grad():
            theirs = model(x.permute(0, 3, 1, 2))
        difference = max(difference, (ours - theirs).abs().max().item())
        largest, images = max(largest, theirs.abs().max().item()), images + len(x)
print(json.dumps({"images": images, "difference": difference / largest}))
