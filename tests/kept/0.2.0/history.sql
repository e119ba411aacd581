BEGIN TRANSACTION;
CREATE TABLE acknowledgements (
	id INTEGER NOT NULL, 
	notice_id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	who VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004_own_jobs');
CREATE TABLE baselines (
	id INTEGER NOT NULL, 
	node VARCHAR, 
	fingerprint VARCHAR, 
	revoked_by VARCHAR, 
	who VARCHAR NOT NULL, 
	why VARCHAR NOT NULL, 
	since DATETIME NOT NULL, 
	accepted_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	other_names VARCHAR DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "baselines" VALUES(1,'node-3',NULL,NULL,'root','a kept store','2026-11-21 02:00:00.000000','2026-11-28 15:26:04.410787',NULL,'[]');
CREATE TABLE campaigns (
	campaign_id VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	title VARCHAR NOT NULL, 
	campaign_kind VARCHAR NOT NULL, 
	dag_run_id VARCHAR, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME NOT NULL, 
	is_drill BOOLEAN NOT NULL, 
	num_runs INTEGER NOT NULL, 
	num_failed INTEGER NOT NULL, 
	num_nodes INTEGER NOT NULL, 
	num_red INTEGER NOT NULL, 
	samples_per_second_limit_pct FLOAT, 
	memory_limit_pct FLOAT, 
	temperature_limit_c FLOAT, 
	past_limit_pct FLOAT, 
	absent VARCHAR DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (campaign_id)
);
INSERT INTO "campaigns" VALUES('night-1','node_consistency','mistral-7b qlora, batch 8 x 512 tokens, on 4 nodes, 1 GPU of each','nodes','scheduled__1','2026-11-21 02:00:00.000000','2026-11-21 02:00:59.000000',0,5,1,4,2,5.0,2.0,10.0,NULL,'[]');
CREATE TABLE marks (
	id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	dag_id VARCHAR NOT NULL, 
	finding VARCHAR NOT NULL, 
	dag_run_id VARCHAR, 
	ended VARCHAR, 
	opened_at DATETIME NOT NULL, 
	closed_at DATETIME, 
	PRIMARY KEY (id)
);
CREATE TABLE messages (
	notice_id INTEGER NOT NULL, 
	event VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	claimed_at DATETIME NOT NULL, 
	sent_at DATETIME, 
	problem VARCHAR, 
	num_tries INTEGER NOT NULL, 
	PRIMARY KEY (notice_id, event, channel)
);
CREATE TABLE node_verdicts (
	work_id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	run_id VARCHAR, 
	num_runs INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	why VARCHAR NOT NULL, 
	reason VARCHAR, 
	node_state VARCHAR NOT NULL, 
	node_why VARCHAR NOT NULL, 
	is_red BOOLEAN NOT NULL, 
	is_drill BOOLEAN NOT NULL, 
	confirmation VARCHAR NOT NULL, 
	samples_per_second FLOAT, 
	noise_pct FLOAT, 
	deviation_pct FLOAT, 
	past_deviation_pct FLOAT, 
	level_deviation_pct FLOAT, 
	past_expected FLOAT, 
	level_expected FLOAT, 
	memory_deviation_pct FLOAT, 
	temperature_deviation_c FLOAT, 
	PRIMARY KEY (work_id, node)
);
INSERT INTO "node_verdicts" VALUES(1,'node-1','night-1-node-1-r1',1,'well','well',NULL,'well','well',0,0,'not_needed',10.0,1.00000037500016653035e-01,10.497237569,NULL,NULL,NULL,NULL,0.0,0.0);
INSERT INTO "node_verdicts" VALUES(1,'node-2','night-1-node-2-r1',1,'well','well',NULL,'well','well',0,0,'not_needed',10.1,1.00000037500016653035e-01,12.222222222,NULL,NULL,NULL,NULL,0.0,0.0);
INSERT INTO "node_verdicts" VALUES(1,'node-3','night-1-node-3-r1',2,'red','slow','samples/s −20.4 % against the median of 2 peers, limit 5 %; −20.4 % first, then −20.4 %','red','slow',1,0,'confirmed',8.0,1.00000037500016653035e-01,-20.39800995,NULL,NULL,NULL,NULL,0.0,0.0);
INSERT INTO "node_verdicts" VALUES(1,'node-4','night-1-node-4-r1',0,'red','failed','round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log','red','failed',1,0,'not_needed',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE nodes (
	node VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	gpu_name VARCHAR NOT NULL, 
	PRIMARY KEY (node, suite, gpu_name)
);
INSERT INTO "nodes" VALUES('node-1','node_consistency','NVIDIA H200');
INSERT INTO "nodes" VALUES('node-2','node_consistency','NVIDIA H200');
INSERT INTO "nodes" VALUES('node-3','node_consistency','NVIDIA H200');
INSERT INTO "nodes" VALUES('node-4','node_consistency','NVIDIA H200');
CREATE TABLE notices (
	id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	category VARCHAR NOT NULL, 
	dag_id VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	why VARCHAR, 
	metric VARCHAR, 
	against VARCHAR, 
	deviation FLOAT, 
	finding VARCHAR NOT NULL, 
	campaign_id VARCHAR NOT NULL, 
	group_id VARCHAR, 
	gpu_name VARCHAR, 
	model VARCHAR, 
	recipe VARCHAR, 
	strategy VARCHAR, 
	dag_run_id VARCHAR, 
	closed_by_campaign_id VARCHAR, 
	ended VARCHAR, 
	opened_at DATETIME NOT NULL, 
	worsened_at DATETIME, 
	closed_at DATETIME, 
	is_drill BOOLEAN NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "notices" VALUES(1,'node-3','','node_consistency','red','samples/s −20.4 % against the median of 2 peers, limit 5 %; −20.4 % first, then −20.4 %','slow','samples_per_second','peers',-20.39800995,'{"level":"error","category":"cause_unknown","nodes":["node-3"],"item":null,"group_id":"mistral-7b-qlora-single-3d0dea8f5e6d","why":"slow","measured":"samples/s −20.4 %","expected":"at most 5 % below the median of 2 peers","evidence":[{"metric":"samples_per_second","against":"peers","value":8.0,"expected":10.05,"source":"the median of 2 peers","deviation":-20.39800995,"limit":5.0,"chance":0.4304091160613209,"rounds":[-20.39800995,-20.39800995],"is_off":true}],"summary":"is slow: samples/s −20.4 % against the median of 2 peers, limit 5 %; −20.4 % first, then −20.4 %","cause":"Nothing explains it: no measured figure distinguishes the node from its peers","clues":[{"category":"cause_unknown","measured":"","expected":"","cause":"nothing explains it: no measured figure distinguishes the node from its peers","resolution":"repeat the check on this node and a good one; if it stays slow, look at the host: dmesg, BIOS, cooling","explains_pct":null}],"resolution":"repeat the check on this node and a good one; if it stays slow, look at the host: dmesg, BIOS, cooling","is_drill":false}','night-1','mistral-7b-qlora-single-3d0dea8f5e6d','NVIDIA H200','mistral-7b','qlora','single','scheduled__1',NULL,'accepted as the new level by root: a kept store','2026-11-21 02:00:59.000000',NULL,'2026-11-28 15:26:04.410787',0);
INSERT INTO "notices" VALUES(2,'node-4','','node_consistency','red','round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log','failed',NULL,NULL,NULL,'{"level":"error","category":"run_incomplete","nodes":["node-4"],"item":null,"group_id":"mistral-7b-qlora-single-3d0dea8f5e6d","why":"failed","measured":"1 of 1 runs failed","expected":"0","evidence":[],"summary":"failed: round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log","cause":null,"clues":[],"resolution":"read the end of pod.log in the store, or find out who ended the pod, then repeat","is_drill":false}','night-1','mistral-7b-qlora-single-3d0dea8f5e6d','NVIDIA H200','mistral-7b','qlora','single','scheduled__1',NULL,NULL,'2026-11-21 02:00:59.000000',NULL,NULL,0);
CREATE TABLE runs (
	campaign_id VARCHAR NOT NULL, 
	run_id VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	group_id VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	recipe VARCHAR NOT NULL, 
	strategy VARCHAR NOT NULL, 
	preset VARCHAR NOT NULL, 
	fingerprint VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	gpu_name VARCHAR, 
	driver VARCHAR, 
	image VARCHAR, 
	torch VARCHAR, 
	kernel VARCHAR, 
	vbios VARCHAR, 
	pod_template VARCHAR, 
	price_source VARCHAR, 
	state VARCHAR, 
	why VARCHAR, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME NOT NULL, 
	is_drill BOOLEAN NOT NULL, 
	is_baseline BOOLEAN NOT NULL, 
	round INTEGER NOT NULL, 
	world_size INTEGER NOT NULL, 
	micro_batch_size INTEGER, 
	seq_length INTEGER, 
	peers VARCHAR NOT NULL, 
	gpu_uuids VARCHAR, 
	libraries VARCHAR, 
	samples_per_second FLOAT, 
	tokens_per_second FLOAT, 
	peak_memory_gb FLOAT, 
	mfu_pct FLOAT, 
	h2d_gb_per_s FLOAT, 
	matmul_tflops FLOAT, 
	temperature_mean_c FLOAT, 
	sm_clock_mean_mhz FLOAT, 
	energy_per_sample_j FLOAT, 
	d2h_gb_per_s FLOAT, 
	memory_gb_per_s FLOAT, 
	peer_gb_per_s FLOAT, 
	matmul_bf16_tflops FLOAT, 
	matmul_fp8_tflops FLOAT, 
	usd_per_gpu_hour FLOAT, 
	gpu_hours FLOAT, 
	run_usd FLOAT, 
	usd_per_1000_samples FLOAT, 
	usd_per_1m_tokens FLOAT, 
	scaling_efficiency_pct FLOAT, 
	energy_j FLOAT, 
	power_limit_w FLOAT, 
	judged_samples_per_second FLOAT, 
	work_id INTEGER, 
	PRIMARY KEY (campaign_id, run_id)
);
INSERT INTO "runs" VALUES('night-1','night-1-node-1-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-1','mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','ok','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','5.15.0','96.00.A9.00.01','none','OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10','well','well','2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',0,1,1,1,8,512,'','GPU-node-1-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}',10.0,5120.0,7.1,38.0,55.4,780.0,60.0,1920.0,67.0,55.2,4070.0,385.0,780.0,1490.0,10.0,1.52777777777777772766e-02,1.52777777777777762358e-01,2.77777777777777790113e-01,5.42534722222222209886e-01,NULL,27000.0,700.0,10.0,1);
INSERT INTO "runs" VALUES('night-1','night-1-node-2-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-2','mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','ok','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','5.15.0','96.00.A9.00.01','none','OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10','well','well','2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',0,1,1,1,8,512,'','GPU-node-2-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}',10.1,5171.2,7.1,38.0,55.4,780.0,60.0,1920.0,67.0,55.2,4070.0,385.0,780.0,1490.0,10.0,1.52777777777777772766e-02,1.52777777777777762358e-01,0.275027502750275,5.37163091309130868999e-01,NULL,27000.0,700.0,10.1,1);
INSERT INTO "runs" VALUES('night-1','night-1-node-3-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-3','mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','ok','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','5.15.0','96.00.A9.00.01','none','OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10','red','slow','2026-11-21 02:00:00.000000','2026-11-21 02:00:59.000000',0,1,1,1,8,512,'','GPU-node-3-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}',8.0,4096.0,7.1,38.0,55.4,780.0,60.0,1920.0,67.0,55.2,4070.0,385.0,780.0,1490.0,10.0,1.63888888888888903383e-02,1.63888888888888917261e-01,3.47222222222222209886e-01,6.78168402777777790113e-01,NULL,27000.0,700.0,8.0,1);
INSERT INTO "runs" VALUES('night-1','night-1-node-4-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-4','mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','incomplete','NVIDIA H200',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'red','failed','2026-11-21 02:00:59.000000','2026-11-21 02:00:59.000000',0,0,1,1,8,512,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1);
INSERT INTO "runs" VALUES('night-1','night-1-node-3-r2','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-3','mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','ok','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','5.15.0','96.00.A9.00.01','none','OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10','red','slow','2026-11-21 02:00:00.000000','2026-11-21 02:00:59.000000',0,1,2,1,8,512,'','GPU-node-3-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}',8.0,4096.0,7.1,38.0,55.4,780.0,60.0,1920.0,67.0,55.2,4070.0,385.0,780.0,1490.0,10.0,1.63888888888888903383e-02,1.63888888888888917261e-01,3.47222222222222209886e-01,6.78168402777777790113e-01,NULL,27000.0,700.0,8.0,1);
CREATE TABLE works (
	id INTEGER NOT NULL, 
	campaign_id VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	group_id VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	day VARCHAR NOT NULL, 
	label VARCHAR, 
	work_key VARCHAR, 
	gpu_name VARCHAR, 
	model VARCHAR, 
	recipe VARCHAR, 
	strategy VARCHAR, 
	preset VARCHAR, 
	world_size INTEGER, 
	micro_batch_size INTEGER, 
	seq_length INTEGER, 
	num_runs INTEGER NOT NULL, 
	num_failed INTEGER NOT NULL, 
	num_valid INTEGER NOT NULL, 
	num_unpriced INTEGER NOT NULL, 
	samples_per_second FLOAT, 
	tokens_per_second FLOAT, 
	peak_memory_gb FLOAT, 
	mfu_pct FLOAT, 
	h2d_gb_per_s FLOAT, 
	matmul_tflops FLOAT, 
	temperature_mean_c FLOAT, 
	sm_clock_mean_mhz FLOAT, 
	energy_per_sample_j FLOAT, 
	d2h_gb_per_s FLOAT, 
	memory_gb_per_s FLOAT, 
	peer_gb_per_s FLOAT, 
	matmul_bf16_tflops FLOAT, 
	matmul_fp8_tflops FLOAT, 
	usd_per_gpu_hour FLOAT, 
	gpu_hours FLOAT, 
	run_usd FLOAT, 
	usd_per_1000_samples FLOAT, 
	usd_per_1m_tokens FLOAT, 
	scaling_efficiency_pct FLOAT, 
	PRIMARY KEY (id)
);
INSERT INTO "works" VALUES(1,'night-1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','2026-11-21 02:00:59.000000','2026-11-21',NULL,'3b54132c208f','NVIDIA H200','mistral-7b','qlora','single','as_users_run',1,8,512,5,1,4,1,9.0,4608.0,7.1,38.0,55.4,780.0,60.0,1920.0,67.0,55.2,4070.0,385.0,780.0,1490.0,10.0,6.33333333333333248216e-02,6.33333333333333303727e-01,0.3125,0.6103515625,NULL);
CREATE INDEX runs_by_group ON runs (group_id, started_at);
CREATE INDEX runs_by_node ON runs (node, started_at);
CREATE INDEX runs_by_work_id ON runs (work_id, node);
CREATE INDEX runs_by_work ON runs (fingerprint, started_at);
CREATE INDEX runs_by_time ON runs (started_at);
CREATE INDEX campaigns_by_suite ON campaigns (suite, finished_at);
CREATE INDEX campaigns_by_time ON campaigns (finished_at);
CREATE INDEX works_by_campaign ON works (campaign_id);
CREATE INDEX works_by_time ON works (at);
CREATE INDEX node_verdicts_red ON node_verdicts (work_id, node) WHERE is_red IS 1;
CREATE INDEX node_verdicts_by_node ON node_verdicts (node, work_id, node_state, node_why, deviation_pct);
CREATE INDEX notices_by_end ON notices (closed_at);
CREATE INDEX notices_by_node ON notices (node, opened_at);
CREATE UNIQUE INDEX notices_open ON notices (dag_id, node, category) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX acknowledgements_by_notice ON acknowledgements (notice_id, node, state);
CREATE INDEX messages_by_time ON messages (claimed_at);
CREATE INDEX marks_by_node ON marks (node, opened_at);
COMMIT;
