BEGIN TRANSACTION;
CREATE TABLE acknowledgements (
	id INTEGER NOT NULL, 
	breach_id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	group_id VARCHAR NOT NULL, 
	who VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	reason VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001_history');
CREATE TABLE baselines (
	id INTEGER NOT NULL, 
	node VARCHAR, 
	fingerprint VARCHAR, 
	since DATETIME NOT NULL, 
	who VARCHAR NOT NULL, 
	why VARCHAR NOT NULL, 
	accepted_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	revoked_by VARCHAR, 
	other_names VARCHAR DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "baselines" VALUES(1,'node-3',NULL,'2026-11-21 02:00:00.000000','root','a kept store','2026-11-23 06:20:27.843297',NULL,NULL,'[]');
CREATE TABLE breaches (
	id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	group_id VARCHAR NOT NULL, 
	campaign_id VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	is_drill BOOLEAN NOT NULL, 
	opened_at DATETIME NOT NULL, 
	closed_at DATETIME, 
	closed_by_campaign_id VARCHAR, 
	dag_id VARCHAR NOT NULL, 
	dag_run_id VARCHAR, 
	gpu_name VARCHAR, 
	model VARCHAR, 
	recipe VARCHAR, 
	strategy VARCHAR, 
	finding VARCHAR NOT NULL, 
	ended VARCHAR, 
	PRIMARY KEY (id)
);
INSERT INTO "breaches" VALUES(1,'node-3','mistral-7b-qlora-single-3d0dea8f5e6d','night-1','breach','samples/s: deviation −20.0 %, limit 5.0 %, noise 0.5 %; re-run −20.0 %',0,'2026-11-21 02:00:55.000000',NULL,NULL,'node_consistency','scheduled__1','NVIDIA H200','mistral-7b','qlora','single','{"level":"error","category":"cause_unknown","nodes":["node-3"],"item":null,"group_id":"mistral-7b-qlora-single-3d0dea8f5e6d","measured":"samples_per_second −20.0 %","expected":"± 5 %","evidence":[{"metric":"samples_per_second","state":"breach","value":8.0,"reference":10.0,"deviation":-20.0,"limit":5.0,"noise":0.4530361968453101,"side":"slow","reason":"samples/s: deviation −20.0 %, limit 5.0 %, noise 0.5 %; re-run −20.0 %","gpu":null}],"changes":[],"summary":"is in breach: samples/s: deviation −20.0 %, limit 5.0 %, noise 0.5 %; re-run −20.0 %","cause":"Cause unknown: no measured figure distinguishes the node from its peers","clues":[{"category":"cause_unknown","measured":"","expected":"","cause":"cause unknown: no measured figure distinguishes the node from its peers","resolution":"repeat the check on this node and a good one; if it stays, look at the host: dmesg, BIOS, cooling","explains_pct":null}],"resolution":"repeat the check on this node and a good one; if it stays, look at the host: dmesg, BIOS, cooling","is_drill":false}',NULL);
INSERT INTO "breaches" VALUES(2,'node-4','mistral-7b-qlora-single-3d0dea8f5e6d','night-1','failed','round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log',0,'2026-11-21 02:00:55.000000',NULL,NULL,'node_consistency','scheduled__1','NVIDIA H200','mistral-7b','qlora','single','{"level":"error","category":"run_incomplete","nodes":["node-4"],"item":null,"group_id":"mistral-7b-qlora-single-3d0dea8f5e6d","measured":"1 of 1 runs failed","expected":"0","evidence":[],"changes":[],"summary":"gave no valid result: round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log","cause":null,"clues":[],"resolution":"find out who ended the pod (eviction, preemption, node restart), then repeat","is_drill":false}',NULL);
CREATE TABLE campaigns (
	campaign_id VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	dag_run_id VARCHAR, 
	title VARCHAR NOT NULL, 
	campaign_kind VARCHAR NOT NULL, 
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
	PRIMARY KEY (campaign_id)
);
INSERT INTO "campaigns" VALUES('night-1','node_consistency','scheduled__1','mistral-7b qlora, batch 8 x 512 tokens, on 4 nodes, 1 GPU of each','nodes','2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',0,5,1,4,2,5.0,2.0,10.0);
CREATE TABLE node_verdicts (
	work_id INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	run_id VARCHAR, 
	num_runs INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	is_red BOOLEAN NOT NULL, 
	history_state VARCHAR, 
	condition VARCHAR NOT NULL, 
	condition_reason VARCHAR, 
	confirmation VARCHAR NOT NULL, 
	is_watched BOOLEAN NOT NULL, 
	is_drill BOOLEAN NOT NULL, 
	samples_per_second FLOAT, 
	deviation_pct FLOAT, 
	own_median_samples_per_second FLOAT, 
	history_deviation_pct FLOAT, 
	memory_deviation_pct FLOAT, 
	temperature_deviation_c FLOAT, 
	reason VARCHAR, 
	PRIMARY KEY (work_id, node)
);
INSERT INTO "node_verdicts" VALUES(1,'node-1','night-1-node-1-r1',1,'ok',0,'no_baseline','well',NULL,'not_needed',0,0,10.0,0.0,NULL,NULL,0.0,0.0,NULL);
INSERT INTO "node_verdicts" VALUES(1,'node-2','night-1-node-2-r1',1,'ok',0,'no_baseline','well',NULL,'not_needed',0,0,10.1,1.0,NULL,NULL,0.0,0.0,NULL);
INSERT INTO "node_verdicts" VALUES(1,'node-3','night-1-node-3-r1',1,'breach',1,'no_baseline','breach','samples/s −20.0 %, limit ±5 %, confirmed by a re-run with −20.0 %','confirmed',0,0,8.0,-20.0,NULL,NULL,0.0,0.0,'samples/s: deviation −20.0 %, limit 5.0 %, noise 0.5 %; re-run −20.0 %');
INSERT INTO "node_verdicts" VALUES(1,'node-4','night-1-node-4-r1',0,'failed',1,NULL,'failed','round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log','not_needed',0,0,NULL,NULL,NULL,NULL,NULL,NULL,'round 1 incomplete: the run on node ''node-4'' gave no result; the state of its task is not known: read the pod''s log');
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
	kind VARCHAR NOT NULL, 
	about_id INTEGER NOT NULL, 
	event VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	claimed_at DATETIME NOT NULL, 
	sent_at DATETIME, 
	problem VARCHAR, 
	num_tries INTEGER NOT NULL, 
	PRIMARY KEY (kind, about_id, event, channel)
);
CREATE TABLE runs (
	campaign_id VARCHAR NOT NULL, 
	run_id VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	group_id VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	model VARCHAR NOT NULL, 
	recipe VARCHAR NOT NULL, 
	strategy VARCHAR NOT NULL, 
	preset VARCHAR NOT NULL, 
	fingerprint VARCHAR NOT NULL, 
	history_key VARCHAR, 
	gpu_name VARCHAR, 
	driver VARCHAR, 
	image VARCHAR, 
	torch VARCHAR, 
	status VARCHAR NOT NULL, 
	state VARCHAR, 
	history_state VARCHAR, 
	is_drill BOOLEAN NOT NULL, 
	is_baseline BOOLEAN NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME NOT NULL, 
	samples_per_second FLOAT, 
	tokens_per_second FLOAT, 
	peak_memory_gb FLOAT, 
	mfu_pct FLOAT, 
	matmul_tflops FLOAT, 
	temperature_mean_c FLOAT, 
	sm_clock_mean_mhz FLOAT, 
	energy_per_sample_j FLOAT, 
	usd_per_gpu_hour FLOAT, 
	gpu_hours FLOAT, 
	run_usd FLOAT, 
	usd_per_1000_samples FLOAT, 
	usd_per_1m_tokens FLOAT, 
	scaling_efficiency_pct FLOAT, 
	peers VARCHAR NOT NULL, 
	world_size INTEGER NOT NULL, 
	micro_batch_size INTEGER, 
	seq_length INTEGER NOT NULL, 
	price_source VARCHAR, 
	energy_j FLOAT, 
	kernel VARCHAR, 
	vbios VARCHAR, 
	power_limit_w FLOAT, 
	gpu_uuids VARCHAR, 
	libraries VARCHAR, 
	pod_template VARCHAR, 
	work_id INTEGER, 
	judged_samples_per_second FLOAT, 
	PRIMARY KEY (campaign_id, run_id)
);
INSERT INTO "runs" VALUES('night-1','night-1-node-1-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-1',1,'mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','b8124cd7c960','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','ok','ok','no_baseline',0,1,'2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',10.0,5120.0,7.1,38.0,780.0,60.0,1920.0,67.0,10.0,1.52777777777777772766e-02,1.52777777777777762358e-01,2.77777777777777790113e-01,5.42534722222222209886e-01,NULL,'',1,8,512,'OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10',27000.0,'5.15.0','96.00.A9.00.01',700.0,'GPU-node-1-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}','none',1,10.0);
INSERT INTO "runs" VALUES('night-1','night-1-node-2-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-2',1,'mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','b8124cd7c960','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','ok','ok','no_baseline',0,1,'2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',10.1,5171.2,7.1,38.0,780.0,60.0,1920.0,67.0,10.0,1.52777777777777772766e-02,1.52777777777777762358e-01,0.275027502750275,5.37163091309130868999e-01,NULL,'',1,8,512,'OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10',27000.0,'5.15.0','96.00.A9.00.01',700.0,'GPU-node-2-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}','none',1,10.1);
INSERT INTO "runs" VALUES('night-1','night-1-node-3-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-3',1,'mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','b8124cd7c960','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','ok','breach','no_baseline',0,0,'2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',8.0,4096.0,7.1,38.0,780.0,60.0,1920.0,67.0,10.0,1.52777777777777772766e-02,1.52777777777777762358e-01,3.47222222222222209886e-01,6.78168402777777790113e-01,NULL,'',1,8,512,'OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10',27000.0,'5.15.0','96.00.A9.00.01',700.0,'GPU-node-3-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}','none',1,8.0);
INSERT INTO "runs" VALUES('night-1','night-1-node-4-r1','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-4',1,'mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d',NULL,'NVIDIA H200',NULL,NULL,NULL,'incomplete','failed',NULL,0,0,'2026-11-21 02:00:55.000000','2026-11-21 02:00:55.000000',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'',1,8,512,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL);
INSERT INTO "runs" VALUES('night-1','night-1-node-3-r2','node_consistency','mistral-7b-qlora-single-3d0dea8f5e6d','node-3',2,'mistral-7b','qlora','single','as_users_run','3d0dea8f5e6d','b8124cd7c960','NVIDIA H200','580.65.06','registry.example/trainbench:0.1.0','2.13.0','ok','breach','no_baseline',0,0,'2026-11-21 02:00:00.000000','2026-11-21 02:00:55.000000',8.0,4096.0,7.1,38.0,780.0,60.0,1920.0,67.0,10.0,1.52777777777777772766e-02,1.52777777777777762358e-01,3.47222222222222209886e-01,6.78168402777777790113e-01,NULL,'',1,8,512,'OCI BM.GPU.H200.8, any listed: Oracle''s price list, in github.com/ewyluda/gpu-price-index, observations of 2026-10-10',27000.0,'5.15.0','96.00.A9.00.01',700.0,'GPU-node-3-0','{"bitsandbytes": "0.50.2", "peft": "0.21.2", "torch": "2.13.0", "transformers": "5.23.0"}','none',1,8.0);
CREATE TABLE warnings (
	id INTEGER NOT NULL, 
	dag_id VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	finding VARCHAR NOT NULL, 
	changes VARCHAR NOT NULL, 
	campaign_id VARCHAR NOT NULL, 
	dag_run_id VARCHAR, 
	opened_at DATETIME NOT NULL, 
	closed_at DATETIME, 
	closed_by_campaign_id VARCHAR, 
	ended VARCHAR, 
	PRIMARY KEY (id)
);
CREATE TABLE works (
	id INTEGER NOT NULL, 
	campaign_id VARCHAR NOT NULL, 
	suite VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	day VARCHAR NOT NULL, 
	group_id VARCHAR NOT NULL, 
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
	num_valid INTEGER NOT NULL, 
	num_failed INTEGER NOT NULL, 
	samples_per_second FLOAT, 
	tokens_per_second FLOAT, 
	peak_memory_gb FLOAT, 
	mfu_pct FLOAT, 
	matmul_tflops FLOAT, 
	temperature_mean_c FLOAT, 
	sm_clock_mean_mhz FLOAT, 
	energy_per_sample_j FLOAT, 
	usd_per_gpu_hour FLOAT, 
	gpu_hours FLOAT, 
	run_usd FLOAT, 
	usd_per_1000_samples FLOAT, 
	usd_per_1m_tokens FLOAT, 
	scaling_efficiency_pct FLOAT, 
	num_unpriced INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "works" VALUES(1,'night-1','node_consistency','2026-11-21 02:00:55.000000','2026-11-21','mistral-7b-qlora-single-3d0dea8f5e6d',NULL,'3b54132c208f','NVIDIA H200','mistral-7b','qlora','single','as_users_run',1,8,512,5,4,1,9.0,4608.0,7.1,38.0,780.0,60.0,1920.0,67.0,10.0,6.11111111111111091065e-02,0.611111111111111,0.3125,0.6103515625,NULL,1);
CREATE INDEX runs_by_group ON runs (group_id, started_at);
CREATE INDEX runs_by_node ON runs (node, history_key, started_at);
CREATE INDEX runs_by_time ON runs (started_at);
CREATE INDEX runs_by_work ON runs (fingerprint, started_at);
CREATE INDEX runs_by_work_id ON runs (work_id, node);
CREATE INDEX breaches_by_end ON breaches (closed_at);
CREATE INDEX breaches_by_node ON breaches (node, group_id, opened_at);
CREATE UNIQUE INDEX breaches_open ON breaches (node, group_id, is_drill) WHERE closed_at IS NULL;
CREATE INDEX campaigns_by_suite ON campaigns (suite, finished_at);
CREATE INDEX campaigns_by_time ON campaigns (finished_at);
CREATE INDEX works_by_campaign ON works (campaign_id);
CREATE INDEX works_by_time ON works (at);
CREATE INDEX node_verdicts_by_node ON node_verdicts (node, work_id, condition, deviation_pct);
CREATE INDEX node_verdicts_red ON node_verdicts (work_id, node) WHERE is_red IS 1;
CREATE UNIQUE INDEX acknowledgements_by_breach ON acknowledgements (breach_id, node, group_id);
CREATE INDEX warnings_by_end ON warnings (closed_at);
CREATE UNIQUE INDEX warnings_open ON warnings (dag_id, node, kind) WHERE closed_at IS NULL;
CREATE INDEX notices_by_time ON notices (claimed_at);
COMMIT;
