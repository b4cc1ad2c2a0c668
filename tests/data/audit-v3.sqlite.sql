BEGIN TRANSACTION;
CREATE TABLE cell (
	model INTEGER NOT NULL, 
	tier INTEGER NOT NULL, 
	start BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	dimension TEXT NOT NULL, 
	"group" TEXT NOT NULL, 
	count BIGINT NOT NULL, 
	unmeasured BIGINT NOT NULL, 
	flips BIGINT NOT NULL, 
	infinite BIGINT NOT NULL, 
	sum DOUBLE NOT NULL, 
	kl DOUBLE NOT NULL, 
	max DOUBLE NOT NULL, 
	histogram BLOB NOT NULL, 
	PRIMARY KEY (model, tier, start, dimension, kind, "group"), 
	FOREIGN KEY(model) REFERENCES model (id)
);
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','all','',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','phase','opening',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','side','white',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','in_check','false',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','legal_moves','20-29',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','elo','1400-1599',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,600,1700049600,'multiplied','all','',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,600,1700049600,'multiplied','phase','opening',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,600,1700049600,'multiplied','side','white',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,600,1700049600,'multiplied','in_check','false',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,600,1700049600,'multiplied','legal_moves','20-29',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,600,1700049600,'multiplied','elo','1400-1599',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,600,1700049600,'raw','cause','blocked',2,0,0,0,0.26,0.0,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'raw','all','',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'raw','phase','opening',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'raw','side','white',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'raw','in_check','false',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'raw','legal_moves','20-29',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'raw','elo','1400-1599',2,0,0,0,0.26,0.26,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(1,0,0,'multiplied','all','',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,0,0,'multiplied','phase','opening',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,0,0,'multiplied','side','white',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,0,0,'multiplied','in_check','false',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,0,0,'multiplied','legal_moves','20-29',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,0,0,'multiplied','elo','1400-1599',2,0,0,0,0.002,0.0,0.001,X'0200000000007505');
INSERT INTO "cell" VALUES(1,0,0,'raw','cause','blocked',2,0,0,0,0.26,0.0,0.25,X'010000000000E9050100000000008C06');
INSERT INTO "cell" VALUES(2,600,1700049600,'raw','all','',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,600,1700049600,'raw','phase','opening',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,600,1700049600,'raw','side','black',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,600,1700049600,'raw','in_check','false',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,600,1700049600,'raw','legal_moves','20-29',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,600,1700049600,'raw','elo','unknown',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,600,1700049600,'multiplied','all','',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,600,1700049600,'multiplied','phase','opening',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,600,1700049600,'multiplied','side','black',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,600,1700049600,'multiplied','in_check','false',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,600,1700049600,'multiplied','legal_moves','20-29',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,600,1700049600,'multiplied','elo','unknown',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,0,0,'raw','all','',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,0,0,'raw','phase','opening',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,0,0,'raw','side','black',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,0,0,'raw','in_check','false',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,0,0,'raw','legal_moves','20-29',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,0,0,'raw','elo','unknown',1,0,0,0,0.5,0.5,0.5,X'010000000000AF06');
INSERT INTO "cell" VALUES(2,0,0,'multiplied','all','',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,0,0,'multiplied','phase','opening',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,0,0,'multiplied','side','black',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,0,0,'multiplied','in_check','false',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,0,0,'multiplied','legal_moves','20-29',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
INSERT INTO "cell" VALUES(2,0,0,'multiplied','elo','unknown',1,0,0,0,0.001,0.0,0.001,X'0100000000007505');
CREATE TABLE model (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	trained_with_mask BOOLEAN NOT NULL, 
	last_time DOUBLE NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name, digest)
);
INSERT INTO "model" VALUES(1,'net','sha256:a',0,1700049601.0);
INSERT INTO "model" VALUES(2,'other','sha256:b',0,1700049600.0);
CREATE TABLE position (
	id INTEGER NOT NULL, 
	model INTEGER NOT NULL, 
	time DOUBLE NOT NULL, 
	fen TEXT NOT NULL, 
	chess960 BOOLEAN NOT NULL, 
	turn TEXT NOT NULL, 
	in_check BOOLEAN NOT NULL, 
	phase TEXT NOT NULL, 
	legal_moves INTEGER NOT NULL, 
	elo DOUBLE, 
	leakage TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(model) REFERENCES model (id)
);
INSERT INTO "position" VALUES(1,1,1700049600.0,'4k3/8/8/8/8/8/4P3/4K3 w - - 0 1',0,'white',0,'opening',20,1500.0,'[{"raw":[0.25,false,0.25],"multiplied":[0.001,false,0.0]},{"blocked":0.25},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "position" VALUES(2,1,1700049601.0,'8/8/8/8/8/5k2/8/5K2 w - - 0 1',0,'white',0,'opening',20,1500.0,'[{"raw":[0.01,false,0.01],"multiplied":[0.001,false,0.0]},{"blocked":0.01},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "position" VALUES(3,2,1700049600.0,'8/8/8/8/8/5k2/8/5K2 b - - 0 1',0,'black',0,'opening',20,NULL,'[{"raw":[0.5,false,0.5],"multiplied":[0.001,false,0.0]},{},[["e2e5",0.25,"wrong_geometry"]]]');
CREATE TABLE schema_version (
	version INTEGER NOT NULL
);
INSERT INTO "schema_version" VALUES(3);
CREATE TABLE worst (
	kind TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	model INTEGER NOT NULL, 
	time DOUBLE NOT NULL, 
	fen TEXT NOT NULL, 
	chess960 BOOLEAN NOT NULL, 
	turn TEXT NOT NULL, 
	in_check BOOLEAN NOT NULL, 
	phase TEXT NOT NULL, 
	legal_moves INTEGER NOT NULL, 
	elo DOUBLE, 
	leakage TEXT NOT NULL, 
	PRIMARY KEY (model, kind, fen), 
	FOREIGN KEY(model) REFERENCES model (id)
);
INSERT INTO "worst" VALUES('raw',0.25,1,1700049600.0,'4k3/8/8/8/8/8/4P3/4K3 w - - 0 1',0,'white',0,'opening',20,1500.0,'[{"raw":[0.25,false,0.25],"multiplied":[0.001,false,0.0]},{"blocked":0.25},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "worst" VALUES('multiplied',0.001,1,1700049600.0,'4k3/8/8/8/8/8/4P3/4K3 w - - 0 1',0,'white',0,'opening',20,1500.0,'[{"raw":[0.25,false,0.25],"multiplied":[0.001,false,0.0]},{"blocked":0.25},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "worst" VALUES('raw',0.01,1,1700049601.0,'8/8/8/8/8/5k2/8/5K2 w - - 0 1',0,'white',0,'opening',20,1500.0,'[{"raw":[0.01,false,0.01],"multiplied":[0.001,false,0.0]},{"blocked":0.01},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "worst" VALUES('multiplied',0.001,1,1700049601.0,'8/8/8/8/8/5k2/8/5K2 w - - 0 1',0,'white',0,'opening',20,1500.0,'[{"raw":[0.01,false,0.01],"multiplied":[0.001,false,0.0]},{"blocked":0.01},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "worst" VALUES('raw',0.5,2,1700049600.0,'8/8/8/8/8/5k2/8/5K2 b - - 0 1',0,'black',0,'opening',20,NULL,'[{"raw":[0.5,false,0.5],"multiplied":[0.001,false,0.0]},{},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO "worst" VALUES('multiplied',0.001,2,1700049600.0,'8/8/8/8/8/5k2/8/5K2 b - - 0 1',0,'black',0,'opening',20,NULL,'[{"raw":[0.5,false,0.5],"multiplied":[0.001,false,0.0]},{},[["e2e5",0.25,"wrong_geometry"]]]');
CREATE INDEX position_time ON position (time);
CREATE INDEX worst_value ON worst (model, kind, value);
COMMIT;
