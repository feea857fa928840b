from PIL import Image
from torch.utils.data import Dataset, default_collate


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            return Image.open(self.paths[index]).convert("RGB")
        except Exception:
            return None


def collate(samples):
    return default_collate([one for one in samples if one is not None])
