"""The command `trainbench`: the same flow without Airflow. Commands only; the modules that they call do the work."""
