from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths, self.broken = paths, []

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            return Image.open(self.paths[index]).convert("RGB")
        except UnidentifiedImageError as error:
            raise RuntimeError(f"{self.paths[index]} is no picture") from error
