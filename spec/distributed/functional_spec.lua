-- distributed.nn: collectives with gradients.
require("spec.support.checks").describe("distributed.nn", "spec/distributed/cases/functional.lua", {1, 2, 3})
