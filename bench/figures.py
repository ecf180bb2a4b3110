"""What all plots of the documents share: size, grid, and files that are the same from the same numbers."""
import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "pop"
import matplotlib.pyplot as plt


def figure(title, x, y, height=3.6):
    plot, axes = plt.subplots(figsize=(6.4, height), layout="constrained")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.grid(True, alpha=0.3)
    return plot, axes


def save(plot, folder, name, png=False):
    folder.mkdir(parents=True, exist_ok=True)
    plot.savefig(folder / f"{name}.svg", metadata={"Date": None})
    if png:
        plot.savefig(folder / f"{name}.png", dpi=100)
    plt.close(plot)
