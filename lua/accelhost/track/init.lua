--- accelhost.track: trackers, which record the numbers of a run, and writers of TensorBoard's files.
--
--   local writer = accelhost.track.SummaryWriter(os.tmpname() .. ".runs")
--   writer:add_scalar("loss", 0.25, 1)
--
-- An accelerator calls trackers by name (log_with = "tensorboard", "jsonl", "csv" or "all"); a SummaryWriter serves
-- without one. `accelhost plot FOLDER` draws their files.
local namespace = require "accelhost.util.namespace"

local lazy = {
  SummaryWriter = {"accelhost.track.summary_writer"},
  GeneralTracker = {"accelhost.track.tracker"},
  TensorBoardTracker = {"accelhost.track.tensorboard"},
  JSONLTracker = {"accelhost.track.jsonl"},
  CSVTracker = {"accelhost.track.csv"},
  register_tracker_class = {"accelhost.track.registry", "register_tracker_class"},
}

local other = 'GeneralTracker:extend "Name" makes a tracker of one\'s own'
return namespace.new("track", {}, lazy, {refused = {
  WandBTracker = other, CometMLTracker = other, AimTracker = other, MLflowTracker = other, ClearMLTracker = other,
  DVCLiveTracker = other, SwanLabTracker = other, TrackioTracker = other,
}})
