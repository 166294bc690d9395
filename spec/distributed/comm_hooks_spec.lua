-- Prepared models send less than their gradients.
local checks = require "spec.support.checks"

checks.describe("Communication hooks of an accelerator", "spec/distributed/cases/comm_hooks.lua", {2, 3})
