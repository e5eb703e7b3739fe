"""The types of functions of graph nodes."""

from collections.abc import Callable

from crossflops.ir.graph import Graph, Node

NodeFormula = Callable[[Node], int]
View = Callable[[Graph], Graph]
